"""Answers in place of the network, for the tests of what reads public data."""

import io

import requests


def answer(content, status=200):
    response = requests.Response()
    response.status_code, response.raw = status, io.BytesIO(content)
    return response


class Source:
    """Has files by name and counts how often it is asked."""

    def __init__(self, files):
        self.files = files
        self.addresses = []

    def __call__(self, address, timeout, **options):
        assert timeout > 0
        self.addresses.append(address)
        return answer(self.files[address.rsplit("/", 1)[1]])


def go_online(monkeypatch, files):
    source = Source(files)
    monkeypatch.setattr(requests, "get", source)
    return source


def go_offline(monkeypatch):
    def fail(address, **options):
        raise requests.ConnectionError("no route to host")

    monkeypatch.setattr(requests, "get", fail)
