"""Imports what the download needs and tells the versions in one line: proof that the
environment works, and the record's head."""

import platform

import cffi
import cryptography
import OpenSSL
import requests
import urllib3

modules = (cffi, cryptography, OpenSSL, requests, urllib3)
told = ["%s %s" % (module.__name__, module.__version__) for module in modules]
print(", ".join(["Python " + platform.python_version()] + told))
