"""Imports the packages of the download and prints their versions in one line. This shows that the
environment works, and goes to the record's head."""

import platform

import cffi
import cryptography
import OpenSSL
import requests
import urllib3

modules = (cffi, cryptography, OpenSSL, requests, urllib3)
told = ["%s %s" % (module.__name__, module.__version__) for module in modules]
print(", ".join(["Python " + platform.python_version()] + told))
