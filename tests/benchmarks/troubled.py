"""A kind of fault whose trials do to their process what faults may do, by their numbers."""

import os
import signal
import time

FINE, FAULTS = ("fine",), ("wrong",)


def trial(number: int) -> str:
    if number == 1:
        os.kill(os.getpid(), signal.SIGSEGV)
    if number == 2:
        while True:
            pass
    if number == 3:
        raise ZeroDivisionError("by purpose")
    if number == 4:
        bytearray(1 << 40)
    if number == 5:
        return "wrong: three words more"
    if number == 6:
        time.sleep(1e6)
    return "fine" if number < 7 else "a word that it does not have"
