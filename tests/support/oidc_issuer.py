"""An OpenID Connect issuer in a process of its own: the script of a test, with a real key, over TLS.

Argument: a PEM file with certificate and key. It prints its address. ``POST /token`` signs the claims in the body, and
``POST /rotate`` replaces the key.
"""

from __future__ import annotations

import json
import ssl
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import jwt
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from jwt.algorithms import RSAAlgorithm


class Issuer:
    def __init__(self) -> None:
        self.url = ""
        self.keys: dict[str, rsa.RSAPrivateKey] = {}
        self.rotate()

    def rotate(self) -> None:
        self.keys = {f"key-{time.time_ns()}": rsa.generate_private_key(65537, 2048)}

    def token(self, claims: dict[str, Any]) -> str:
        key_id, key = next(iter(self.keys.items()))
        now = int(time.time())
        usual = {"iss": self.url, "aud": "emberkeep", "iat": now, "exp": now + 600}
        pem = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        return jwt.encode({**usual, **claims}, pem, algorithm="RS256", headers={"kid": key_id})

    def published(self) -> dict[str, Any]:
        return {
            "keys": [
                {**json.loads(RSAAlgorithm.to_jwk(key.public_key())), "kid": key_id, "use": "sig", "alg": "RS256"}
                for key_id, key in self.keys.items()
            ]
        }


ISSUER = Issuer()


class Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        documents: dict[str, Any] = {
            "/.well-known/openid-configuration": {"issuer": ISSUER.url, "jwks_uri": f"{ISSUER.url}/keys"},
            "/keys": ISSUER.published(),
        }
        self._send(documents.get(self.path))

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.path == "/rotate":
            ISSUER.rotate()
            self._send({})
        else:
            self._send({"token": ISSUER.token(json.loads(body))})

    def _send(self, document: dict[str, Any] | None) -> None:
        data = json.dumps(document).encode()
        self.send_response(404 if document is None else 200)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: object) -> None:
        """Be silent."""


if __name__ == "__main__":
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(sys.argv[1])
    server.socket = context.wrap_socket(server.socket, server_side=True)
    ISSUER.url = f"https://127.0.0.1:{server.server_address[1]}"
    print(ISSUER.url, flush=True)
    server.serve_forever()
