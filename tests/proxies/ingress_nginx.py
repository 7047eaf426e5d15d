"""A real NGINX with what ingress-nginx's controller would make of `deploy/ingress-nginx`.

The controller itself needs a cluster and its own build (Lua). What is written here by hand is what its
template has around the snippets: the location that asks, the application's, and what is set in them.
"""

from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml

from tests.proxies.nginx import PROXIES as NGINX
from tests.proxies.nginx import run
from tests.proxies.process import DEPLOY

ANNOTATION = "nginx.ingress.kubernetes.io/"
#: The name that the sidecar has in a cluster, and where it is here.
IN_CLUSTER, HERE = "ratelimit-sidecar.ratelimit.svc.cluster.local:8000", "127.0.0.1:8000"

_FILE = """
pid nginx.pid;
error_log stderr;
events {}
http {
    client_body_temp_path body; proxy_temp_path proxy;
    fastcgi_temp_path fastcgi; uwsgi_temp_path uwsgi; scgi_temp_path scgi;
    access_log off;
    variables_hash_max_size 2048;
    map $http_upgrade $connection_upgrade { default upgrade; "" ""; }
    map $http_x_request_id $req_id { default $http_x_request_id; "" $request_id; }
    upstream upstream_balancer { server 127.0.0.1:8080; keepalive 320; }
    server {
        listen 127.0.0.1:10000;
        set $proxy_upstream_name "-";

        <server-snippet>

        location = /_external-auth-Lw-Prefix {
            internal;
            access_log off;
            set $proxy_upstream_name "default-app-80";
            proxy_pass_request_body off;
            proxy_set_header Content-Length "";
            proxy_set_header X-Forwarded-Proto "";
            proxy_set_header X-Request-ID $req_id;
            proxy_set_header Host <host>;
            proxy_set_header X-Original-URL $scheme://$http_host$request_uri;
            proxy_set_header X-Original-Method $request_method;
            proxy_set_header X-Sent-From "nginx-ingress-controller";
            proxy_set_header X-Real-IP $remote_addr;
            proxy_set_header X-Forwarded-For $remote_addr;
            proxy_set_header X-Auth-Request-Redirect $request_uri;
            proxy_buffering off;
            proxy_buffer_size 4k;
            proxy_buffers 4 4k;
            proxy_request_buffering on;
            proxy_ssl_server_name on;
            proxy_pass_request_headers on;
            client_max_body_size 1m;

            <auth-snippet>

            proxy_http_version 1.1;
            set $target <auth-url>;
            proxy_pass $target;
        }

        location / {
            auth_request /_external-auth-Lw-Prefix;
            auth_request_set $auth_cookie $upstream_http_set_cookie;
            add_header Set-Cookie $auth_cookie;
            client_max_body_size 1m;
            proxy_set_header Host $http_host;
            proxy_set_header Upgrade $http_upgrade;
            proxy_set_header Connection $connection_upgrade;
            proxy_set_header X-Request-ID $req_id;
            proxy_set_header X-Real-IP $remote_addr;
            proxy_set_header X-Forwarded-For $remote_addr;
            proxy_connect_timeout 5s;
            proxy_send_timeout 60s;
            proxy_read_timeout 60s;
            proxy_buffering off;
            proxy_http_version 1.1;
            proxy_next_upstream error timeout;
            proxy_next_upstream_tries 3;

            <configuration-snippet>

            proxy_pass http://upstream_balancer;
        }
    }
}
"""


def manifest(name: str, fail_open: bool) -> Any:
    folder = DEPLOY / "ingress-nginx" if fail_open else DEPLOY / "ingress-nginx" / "fail-closed"
    return yaml.safe_load((folder / name).read_text("utf-8"))


def configuration(fail_open: bool) -> str:
    """What the controller would write, and the sidecar where it is here."""
    text = _FILE.replace("<host>", IN_CLUSTER.partition(":")[0])
    for name, value in manifest("ingress.yaml", fail_open)["metadata"]["annotations"].items():
        text = text.replace(f"<{name.removeprefix(ANNOTATION)}>", value)
    return text.replace(IN_CLUSTER, HERE)


def command(program: Path, directory: Path, fail_open: bool) -> list[str]:
    file = directory / "nginx.conf"
    file.write_text(configuration(fail_open))
    return run(program, directory, file)


PROXIES = [
    replace(nginx, name=nginx.name.replace("nginx", "ingress-nginx"), command=command) for nginx in NGINX
]


def check_headers(method: str, url: str, address: str) -> dict[str, str]:
    """What the controller sends with a check, without the client's own headers and without snippets."""
    _, _, rest = url.partition("://")
    return {
        "X-Request-ID": "0123456789abcdef0123456789abcdef",
        "Host": IN_CLUSTER.partition(":")[0],
        "X-Original-URL": url,
        "X-Original-Method": method,
        "X-Sent-From": "nginx-ingress-controller",
        "X-Real-IP": address,
        "X-Forwarded-For": address,
        "X-Auth-Request-Redirect": "/" + rest.partition("/")[2],
    }


def without_snippets() -> dict[str, Any]:
    """What the sidecar needs where no snippet sets its own header."""
    return {"client_ip": {"dialects": {"ingress-nginx": {"header": "x-real-ip"}}}}
