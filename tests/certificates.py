"""A private authority, and certificates of it for servers and clients of a test."""

from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

Key = ec.EllipticCurvePrivateKey


class Authority:
    """Writes files into `directory`: `ca.pem`, and for each name that is certified `….pem` and `….key`."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._key, self._name = _key(), _name("authority of a test")
        certificate = _certificate(self._name, self._key, self._name, self._key, is_authority=True)
        self.file = directory / "ca.pem"
        self.file.write_bytes(_pem(certificate))

    def certify(self, name: str, *addresses: str, lasts: timedelta = timedelta(days=1)) -> tuple[Path, Path]:
        """A certificate and its key, good for these addresses and names, since an hour ago."""
        key = _key()
        certificate = _certificate(_name(name), key, self._name, self._key, addresses=addresses, lasts=lasts)
        files = self._directory / f"{name}.pem", self._directory / f"{name}.key"
        files[0].write_bytes(_pem(certificate))
        encoding, form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
        files[1].write_bytes(key.private_bytes(encoding, form, serialization.NoEncryption()))
        return files


def _certificate(
    name: x509.Name,
    key: Key,
    issuer: x509.Name,
    issuer_key: Key,
    *,
    addresses: tuple[str, ...] = (),
    is_authority: bool = False,
    lasts: timedelta = timedelta(days=1),
) -> x509.Certificate:
    now = datetime.now(UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + lasts)
        .add_extension(x509.BasicConstraints(ca=is_authority, path_length=None), critical=True)
    )
    if addresses:
        names = x509.SubjectAlternativeName([_alternative(each) for each in addresses])
        builder = builder.add_extension(names, critical=False)
    return builder.sign(issuer_key, hashes.SHA256())


def _alternative(address: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(address))
    except ValueError:
        return x509.DNSName(address)


def _key() -> Key:
    return ec.generate_private_key(ec.SECP256R1())


def _name(common: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common)])


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)
