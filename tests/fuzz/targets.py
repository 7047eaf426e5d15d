"""Every reader of what comes from outside, by name; that of the admin port is in `admin_port`."""

from tests.fuzz import data_port, files, values
from tests.fuzz.running import Target

TARGETS = {
    target.name: target
    for target in (
        Target("data-port", data_port.requests(), data_port.holds, slowness=10),
        Target("paths", values.paths(), values.path_holds),
        Target("addresses", values.addresses(), values.address_holds, slowness=4),
        Target("identifiers", values.identities(), values.identity_holds, slowness=2),
        Target("jwt-payloads", values.payloads(), values.payload_holds),
        Target("tokens", values.forged(), values.token_holds),
        Target("key-sets", values.key_sets(), values.key_set_holds, slowness=4),
        Target("configurations", files.configurations(), files.configuration_holds, slowness=10),
        Target("env-files", files.env_files(), files.env_file_holds),
        Target("store-urls", files.store_urls(), files.store_url_holds),
        Target("envoy-files", files.envoy_files(), files.envoy_holds, slowness=10),
        Target("recipes", files.recipes(), files.recipe_holds, slowness=20),
    )
}
