"""Makes the key and the self-signed certificate of the loopback server.

Arguments: the files to write, first the key, then the certificate.
"""

import datetime
import ipaddress
import os
import sys

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec


def certificate(key):
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "neap-lab download")])
    now = datetime.datetime.now(datetime.timezone.utc)
    public = key.public_key()
    usage = x509.KeyUsage(
        digital_signature=True, key_cert_sign=True, content_commitment=False,
        key_encipherment=False, data_encipherment=False, key_agreement=False, crl_sign=False,
        encipher_only=False, decipher_only=False,
    )
    address = x509.IPAddress(ipaddress.ip_address("127.0.0.1"))
    # The strict checks of newer Python versions require all of these in a self-signed certificate.
    extensions = [
        (x509.SubjectAlternativeName([address]), False),
        (x509.BasicConstraints(ca=True, path_length=0), True),
        (usage, True),
        (x509.SubjectKeyIdentifier.from_public_key(public), False),
        (x509.AuthorityKeyIdentifier.from_issuer_public_key(public), False),
    ]
    builder = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(public)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=3650))
    )
    for extension, critical in extensions:
        builder = builder.add_extension(extension, critical)
    return builder.sign(key, hashes.SHA256())


def main():
    key_file, certificate_file = sys.argv[1:]
    key = ec.generate_private_key(ec.SECP256R1())
    text = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    descriptor = os.open(key_file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(text)
    with open(certificate_file, "wb") as file:
        file.write(certificate(key).public_bytes(serialization.Encoding.PEM))


main()
