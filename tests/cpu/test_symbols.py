"""Functions of a library are found by other names, in libraries that are loaded later."""

import ctypes
import os
import sys

import pytest

from zoo.cpu import symbols

LINUX = sys.platform == "linux"


def test_functions_have_the_names_given():
    if not LINUX:
        return
    libc = ctypes.CDLL("libc.so.6")
    symbols.define(
        {
            "zoo_test_length": symbols.address(libc, "strlen"),
            "zoo_test_absolute": symbols.address(libc, "abs"),
        }
    )
    everything = ctypes.CDLL(None)
    assert everything.zoo_test_length(b"twelve bytes") == 12
    assert everything.zoo_test_absolute(-7) == 7


def test_names_can_be_given_again_and_again():
    if not LINUX:
        return
    libc = ctypes.CDLL("libc.so.6")
    for number in range(5):  # each in a file that has the number of the one before
        symbols.define({f"zoo_test_absolute_{number}": symbols.address(libc, "abs")})
        assert ctypes.CDLL(None)[f"zoo_test_absolute_{number}"](-number) == number


def test_a_function_that_is_missing_has_no_address():
    if not LINUX:
        return
    with pytest.raises(AttributeError, match="no_such_function"):
        symbols.address(ctypes.CDLL("libc.so.6"), "no_such_function")


def test_an_unknown_machine_is_refused(monkeypatch):
    if not LINUX:
        return
    monkeypatch.setattr(os, "uname", lambda: os.uname_result(("Linux", "host", "1", "1", "m68k")))
    with pytest.raises(OSError, match="m68k"):
        symbols.define({"zoo_test_name": 1})
