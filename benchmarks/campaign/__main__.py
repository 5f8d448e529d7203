"""Run the fault campaign.

    python -m benchmarks.campaign [kind ...] [--count 3000] [--jobs 2]

Without a kind all of them. Each kind has its record, results/campaign_<kind>.csv, one line for each batch of trials, a hundred
unless the kind says otherwise; a run that was stopped goes on where it was. The command ends with code 1 when a trial had a fault
or took more than three times the median of its size. `--again 17 23` does single trials in this process, to look at them.
"""

from __future__ import annotations

import argparse
import importlib
import pkgutil
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.campaign import kinds
from benchmarks.campaign.running import num_faults, run, slow
from benchmarks.tables.common.records import RESULTS


def main(arguments: Sequence[str] | None = None) -> int:
    known = sorted(module.name for module in pkgutil.iter_modules(kinds.__path__))
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kinds", nargs="*", metavar="kind", help=f"of {', '.join(known)}; all unless given")
    parser.add_argument("--count", type=int, help="trials of each kind; as many as the kind says unless given")
    parser.add_argument("--jobs", type=int, default=2, help="processes side by side")
    parser.add_argument("--again", type=int, nargs="+", metavar="NUMBER", help="do these trials here and show what comes back")
    parser.add_argument("--folder", type=Path, default=RESULTS, help="of the records")
    options = parser.parse_args(arguments)
    if unknown := set(options.kinds) - set(known):
        parser.error(f"there is no kind {', '.join(sorted(unknown))}; there are {', '.join(known)}")
    found = 0
    for name in options.kinds or known:
        module = f"{kinds.__name__}.{name}"
        if options.again:
            for number in options.again:
                print(name, number, importlib.import_module(module).trial(number))
            continue
        lines = run(module, options.count or importlib.import_module(module).COUNT, options.jobs, options.folder)
        faults, (num_timed, late) = num_faults(module, lines), slow(lines)
        found += faults + len(late)
        said = f", {len(late)} slow of {num_timed} timed{': ' * bool(late)}{'; '.join(late[:5])}" if num_timed else ""
        print(f"{name}: {sum(int(line['trials']) for line in lines)} trials, {faults} faults{said}", flush=True)
    return int(found > 0)


if __name__ == "__main__":
    sys.exit(main())
