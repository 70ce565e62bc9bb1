"""Changes the package in one place at a time, and checks whether a test fails.

    python tests/mutants.py                                 the lines that differ from `main`
    python tests/mutants.py paymentsdk/_call/retry.py     files and folders

The tests are collected once. They run once unchanged, which shows the lines that each test runs. Then a fork of the
process tries each mutant with the tests that run its line, until a test fails. Inside a function, the mutated code
replaces the original. Elsewhere the fork imports the package again.

A mutant survives if no test fails: the tests lack a rule, or the code has an unneeded part. mutants.txt lists accepted
survivors with reasons. The score is the share of failing mutants among all others.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import gc
import os
import pickle
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Collection, Iterator
from importlib.machinery import SourceFileLoader
from itertools import accumulate, pairwise
from pathlib import Path
from types import CodeType, FunctionType
from typing import NamedTuple, NoReturn, TypeAlias

import coverage
import pytest

ROOT = Path(__file__).parents[1]
ACCEPTED = ROOT / "tests" / "mutants.txt"
#: The lowest accepted score in percent.
GOAL = 96
#: The tests for a part of the package. All tests are for the other parts.
TESTS = {
    "paymentsdk/_call": (
        "auth calls client codec contract downstream engine flow golden identity internal journal paging property "
        "test_client.py test_public_names.py"
    ),
    "paymentsdk/sandbox": "sandbox sandbox_openapi",
    "paymentsdk/transports": (
        "transports engine/test_errors.py engine/test_inline.py engine/test_retry.py client/test_event_loops.py"
    ),
    "paymentsdk/reconcile": "reconcile internal",
    "paymentsdk/cli": "cli",
}
#: The time limit of a test: this multiple of its time without a mutant, plus these seconds.
SLOWER, PATIENCE = 20, 10
#: Seconds for any test without a mutant.
UNMUTATED = 900
#: Seconds for all tests of one mutant, as measured without a mutant: all tests may run the line of a survivor.
#: Constants and defaults get more time, since the tests that need them are unknown.
LONGEST, LONGEST_ELSEWHERE = 20.0, 40.0
#: Without rewritten assertions, the loader of pytest ignores the package, and a mutated file can be imported.
OPTIONS = [
    *("-q", "-s", "--assert=plain", "-p", "no:cacheprovider", "-o", "timeout=0"),
    *("-o", "addopts=--import-mode=importlib -p pytester -p no:paymentsdk"),
]

Functions: TypeAlias = "dict[tuple[str, str, int], list[FunctionType]]"

SWAPS = dict(
    pair
    for operator, opposite in [
        *[(ast.Lt, ast.LtE), (ast.Gt, ast.GtE), (ast.Eq, ast.NotEq), (ast.Is, ast.IsNot), (ast.In, ast.NotIn)],
        *[(ast.Add, ast.Sub), (ast.Mult, ast.Div), (ast.BitOr, ast.BitAnd), (ast.And, ast.Or), (ast.Pow, ast.Mod)],
        (ast.Continue, ast.Break),
    ]
    for pair in [(operator, opposite), (opposite, operator)]
)
DELETED = ast.Assign | ast.AugAssign | ast.Delete | ast.Expr | ast.Raise
FUNCTION = ast.FunctionDef | ast.AsyncFunctionDef
#: Nodes that are never changed: imports and texts.
LEFT_ALONE = ast.Import | ast.ImportFrom | ast.JoinedStr
TYPES = ("annotation", "returns", "type_params", "bases", "decorator_list")


class Site(NamedTuple):
    """A place in a tree, and its replacement."""

    function: ast.AST | None
    """The outermost function around it."""
    name: str
    """The name of the function, or of the class."""
    statement: ast.stmt
    owner: ast.AST
    field: str
    index: int | None
    new: ast.AST

    def swap(self) -> Site:
        """Change the place, and return the site whose `swap` undoes the change."""
        values = getattr(self.owner, self.field)
        old = values if self.index is None else values[self.index]
        if self.index is None:
            setattr(self.owner, self.field, self.new)
        else:
            values[self.index] = self.new
        return self._replace(new=old)


class Mutant(NamedTuple):
    """One change of one place of a file."""

    path: str
    site: int
    line: int
    last_line: int
    function: tuple[str, int] | None
    """The name and the first line of the function around the place."""
    around: range
    """The lines of the function."""
    name: str
    """The name in mutants.txt, without line numbers, which change often."""


def changed(node: ast.AST, field: str) -> ast.AST | None:
    """Return the replacement of *node*; `None` if *node* stays unchanged."""
    match node:
        case ast.Constant(value=bool()):
            return ast.Constant(not node.value)
        case ast.Constant(value=int() | float()):
            return ast.Constant(node.value + 1)
        case ast.Constant(value=str()) if re.fullmatch(r"[\w./-]+", node.value):  # Other texts are prose.
            return ast.Constant(node.value + "X")
        case ast.UnaryOp(op=ast.Not()):
            return node.operand
        case ast.Name() | ast.Attribute() | ast.Call() if field in {"test", "guard", "ifs"}:
            return ast.UnaryOp(ast.Not(), node)
        case ast.Return(value=ast.AST()) if ast.unparse(node) not in {"return None", "return False"}:
            return ast.Return(ast.Constant(None))
        case _ if isinstance(node, DELETED):
            return ast.Pass()
        case _:
            new = SWAPS.get(type(node))
            return new and new()


def sites(
    owner: ast.AST, statement: ast.stmt | None = None, function: ast.AST | None = None, name: str = ""
) -> Iterator[Site]:
    """Yield the places to change below *owner*, always in the same order."""
    for field, value in ast.iter_fields(owner):
        if field in TYPES or (isinstance(owner, ast.ClassDef) and field == "keywords"):
            continue
        inside = owner if function is None and isinstance(owner, FUNCTION) and field == "body" else function
        for index, node in enumerate(value) if isinstance(value, list) else [(None, value)]:
            if not isinstance(node, ast.AST) or isinstance(node, LEFT_ALONE) or is_idle(node):
                continue
            if field == "args" and index == 0 and isinstance(owner, ast.Call) and ast.unparse(owner.func) == "cast":
                continue  # Only type checkers read types.
            within = node if isinstance(node, ast.stmt) else statement
            if (new := changed(node, field)) is not None and within is not None:
                yield Site(inside, name, within, owner, field, index, new)
            is_named = inside is None and isinstance(node, FUNCTION | ast.ClassDef)
            yield from sites(node, within, inside, f"{name}.{node.name}".lstrip(".") if is_named else name)


def is_idle(node: ast.AST) -> bool:
    """Return whether *node* is only for readers or type checkers."""
    match node:
        case ast.Expr(value=ast.Constant()) | ast.If(test=ast.Name(id="TYPE_CHECKING")):
            return True
        case ast.Assign(targets=[ast.Name(id="__slots__" | "__all__")]) | ast.Call(func=ast.Name(id="TypeVar")):
            return True
        case ast.Assign(value=ast.Call(func=ast.Name(id="TypeVar"))):
            return True
        case _:
            return False


def mutants_of(path: Path, lines: set[int] | None) -> Iterator[Mutant]:
    """Yield the mutants of a file, or of some of its *lines*."""
    tree = ast.parse(path.read_text())
    relative = str(path.relative_to(ROOT))
    for number, site in enumerate(sites(tree)):
        statement, function = site.statement, site.function
        # For a compound statement, only the lines before its body.
        body = getattr(statement, "body", None) or getattr(statement, "cases", None)
        last = (statement.end_lineno or 0) if not body else max(statement.lineno, getattr(body[0], "lineno", 0) - 1)
        line = getattr(getattr(statement, site.field, None), "lineno", statement.lineno) if body else statement.lineno
        if lines is None or lines.intersection(range(line, last + 1)):
            before = ast.unparse(statement).split("\n")
            back = site.swap()
            ast.fix_missing_locations(tree)
            after = ast.unparse(site.new if isinstance(site.new, ast.stmt) else statement).split("\n")
            back.swap()
            text = next(
                (f"{old.strip()} -> {new.strip()}" for old, new in zip(before, after, strict=False) if old != new), ""
            )
            first = min(part.lineno for part in [function, *function.decorator_list]) if function else 0
            held = (site.name, first) if function else None
            around = range(first, (function.end_lineno or 0) + 1) if function else range(0)
            yield Mutant(str(path), number, line, last, held, around, f"{relative} {site.name}: {text}")


def mutated(mutant: Mutant) -> CodeType:
    """Compile the file of *mutant* with the change."""
    tree = ast.parse(Path(mutant.path).read_text())
    list(sites(tree))[mutant.site].swap()
    return compile(ast.fix_missing_locations(tree), mutant.path, "exec")


def codes(code: CodeType) -> Iterator[CodeType]:
    """Yield *code* and all code objects in it."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from codes(constant)


class Trial:
    """A plugin of pytest that tries mutants with the collected tests instead of running the tests."""

    def __init__(self, mutants: list[Mutant], jobs: int) -> None:
        self.mutants = mutants
        self.jobs = jobs
        self.accepted = {line for line in ACCEPTED.read_text().splitlines() if line and not line.startswith("#")}
        self.survivors: list[Mutant] = []
        self.failed: set[str] = set()
        self.seconds: dict[str, float] = {}
        self.now: Path | None = None
        """The file with the current test of a learning fork."""
        self.breadth: Counter[str] = Counter()
        """The number of lines of the files that each test runs."""
        self.runners: dict[str, dict[int, list[str]]] = {}

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        """Make a hanging test kill the fork."""
        if self.now is None:
            allowed = int(SLOWER * self.seconds.get(nodeid, 6.0)) + PATIENCE
            begun = time.monotonic() - starved()

            def ring(*_: object) -> None:
                if time.monotonic() - starved() - begun >= allowed:
                    os._exit(1)
                signal.alarm(PATIENCE)  # Other processes had the machine, so the test has hung for a shorter time.

            signal.signal(signal.SIGALRM, ring)
            signal.alarm(allowed)
        else:  # Without a mutant, any test may be slow on a busy machine, and a killed fork loses all its tests.
            self.now.write_text(nodeid)
            signal.alarm(UNMUTATED)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note the failing test."""
        if report.failed:
            self.failed.add(report.nodeid)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Try all mutants."""
        self.learn(session.items)
        items = {item.nodeid: item for item in session.items if item.nodeid not in self.failed}
        functions: dict[tuple[str, str, int], list[FunctionType]] = {}
        for function in gc.get_objects():
            if isinstance(function, FunctionType):
                functions.setdefault(place(function.__code__), []).append(function)
        gc.freeze()
        running: dict[int, Mutant] = {}
        for number, mutant in enumerate(self.mutants, 1):
            if len(running) == self.jobs:
                self.reap(running)
            if pid := os.fork():
                running[pid] = mutant
            else:
                self.try_one(mutant, functions, [items[test] for test in self.chosen(mutant, items.keys())])
            if number % 100 == 0:
                print(f"{number} of {len(self.mutants)} tried, {len(self.survivors)} survive", flush=True)
        while running:
            self.reap(running)
        return True

    def learn(self, items: list[pytest.Item]) -> None:
        """Run *items* unchanged in forks, and learn the time and the lines of each."""
        files = {mutant.path for mutant in self.mutants}
        self.runners = {path: {} for path in files}
        parts = [items[number :: self.jobs] for number in range(self.jobs)]
        with tempfile.TemporaryDirectory() as folder:
            children = {
                os.fork() or self.learn_part(part, files, Path(folder, str(n))): Path(folder, str(n))
                for n, part in enumerate(parts)
            }
            for pid, file in children.items():
                status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
                if status or not file.exists():
                    # Without its tests, a survivor would look the same as a mutant whose test was not run.
                    at = file.with_suffix(".now").read_text()
                    pytest.exit(f"a fork that ran the tests without a mutant ended with {status} at {at}", returncode=3)
                runners, seconds, failed = pickle.loads(file.read_bytes())
                self.seconds |= seconds
                self.failed |= failed
                for path, lines in runners.items():
                    for line, tests in lines.items():
                        self.runners[path].setdefault(line, []).extend(tests)
        self.breadth = Counter(test for lines in self.runners.values() for tests in lines.values() for test in tests)
        for test in sorted(self.failed):
            print("left out, since it fails without any mutant:", test)

    def learn_part(self, items: list[pytest.Item], files: set[str], file: Path) -> NoReturn:
        """Run *items*, and write their times and lines to *file*."""
        silence()
        self.now = file.with_suffix(".now")
        watch = coverage.Coverage(data_file=None, config_file=False, include=[*files])
        watch.start()
        try:
            for item, following in pairwise([*items, None]):
                watch.switch_context(item.nodeid)
                begun = time.process_time()  # The load of the machine must not count as the time of a test.
                item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
                self.seconds[item.nodeid] = time.process_time() - begun
            watch.stop()
            runners = {path: watch.get_data().contexts_by_lineno(path) for path in files}
            file.write_bytes(pickle.dumps((runners, self.seconds, self.failed)))
        finally:
            if error := sys.exception():
                self.now.write_text(f"{self.now.read_text()}: {error!r}")
            os._exit(error is not None)  # Continuing would remove the folder that the other forks still need.

    def chosen(self, mutant: Mutant, candidates: Collection[str]) -> list[str]:
        """Return the tests of *candidates* for which there is time.

        Tests that run the statement of *mutant* come first, then tests that run another line of its function: some
        versions of Python do not trace a coroutine after an error was thrown into it.
        """
        runners = self.runners[mutant.path]
        lines = range(mutant.line, mutant.last_line + 1) if mutant.function else runners
        chosen: list[str] = []
        for nearby in (lines, mutant.around):
            tests = {test for line in nearby for test in runners.get(line, ())}
            chosen += self.ranked(tests.intersection(candidates).difference(chosen))
        spent = accumulate(self.seconds[test] for test in chosen)
        longest = LONGEST if mutant.function else LONGEST_ELSEWHERE
        return [test for test, seconds in zip(chosen, spent, strict=True) if seconds < longest]

    def ranked(self, tests: Collection[str]) -> list[str]:
        """Sort *tests*: the most specific test of each file first, then the second of each file, and so on.

        The most specific test runs the fewest lines. The quickest tests of a file are often about something else.
        """
        by_file: Counter[str] = Counter()
        ranked = []
        for test in sorted(tests, key=lambda test: (self.breadth[test] * self.seconds[test], test)):
            file = test.partition("::")[0]
            by_file[file] += 1
            ranked.append((by_file[file], test))
        return [test for _, test in sorted(ranked)]

    def try_one(self, mutant: Mutant, functions: Functions, items: list[pytest.Item]) -> NoReturn:
        """Run *items* with *mutant* in a fork that exits with 1 if a test fails."""
        silence()
        self.failed.clear()
        code = mutated(mutant)
        try:
            new = {place(nested): nested for nested in codes(code)}[mutant.path, *mutant.function]
            for function in functions[place(new)]:
                function.__code__ = new
        except (KeyError, TypeError, ValueError):  # Outside functions, or an inner function loses a name.
            self.import_anew(mutant, code)
            os._exit(
                bool(items) and bool(pytest.main([*OPTIONS, "-x", *(item.nodeid for item in items)], plugins=[self]))
            )
        for item, following in pairwise([*items, None]):
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            if self.failed:
                os._exit(1)
        os._exit(0)

    def import_anew(self, mutant: Mutant, code: CodeType) -> None:
        """Forget the package and the tests; the next import of the file of *mutant* then runs *code*."""
        for name in [name for name in sys.modules if name.partition(".")[0] in {"paymentsdk", "tests", "conftest"}]:
            del sys.modules[name]
        original = SourceFileLoader.get_code
        SourceFileLoader.get_code = lambda loader, name: code if loader.path == mutant.path else original(loader, name)
        # The tests of this file run; they are not mutated.
        self.pytest_runtestloop = None

    def reap(self, running: dict[int, Mutant]) -> None:
        """Wait for a fork to end. Without a failure and a signal, its mutant survives."""
        pid, status = os.wait()
        mutant = running.pop(pid)
        if status == 0 and mutant.name not in self.accepted:
            self.survivors.append(mutant)
            print(f"survives: {mutant.path}:{mutant.line}\n    {mutant.name}", flush=True)


def place(code: CodeType) -> tuple[str, str, int]:
    """Return the identity of a function."""
    return code.co_filename, code.co_qualname, code.co_firstlineno


def starved() -> float:
    """Return the seconds that this process waited for a core; 0 if the system does not count them."""
    with contextlib.suppress(OSError):
        return int(Path("/proc/thread-self/schedstat").read_text().split()[1]) / 1e9
    return 0.0


def silence() -> None:
    """Hide the output of a fork."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.dup2(nowhere, 2)


def changed_lines(since: str) -> dict[Path, set[int]]:
    """Return the lines of the package that differ from the common ancestor with the revision *since*."""
    command = ["git", "diff", "-U0", "--merge-base", since, "--", "paymentsdk/*.py"]
    lines_of: dict[Path, set[int]] = {}
    for line in subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout.splitlines():
        if line.startswith("+++ "):
            lines = lines_of.setdefault(ROOT / line.removeprefix("+++ b/"), set())
        elif hunk := re.match(r"@@ \S+ \+(\d+)(?:,(\d+))? @@", line):
            lines.update(range(int(hunk[1]), int(hunk[1]) + int(hunk[2] or 1)))
    return {path: lines for path, lines in lines_of.items() if path.exists()}


def main() -> int:
    """Try the mutants of the command line, and print the survivors."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("paths", nargs="*", type=Path, help="files and folders (the changed lines)")
    parser.add_argument("--since", default="main", help="the revision to compare with (%(default)s)")
    parser.add_argument("--tests", nargs="+", help="the tests to run (the tests of the same part of the package)")
    parser.add_argument("--sample", type=int, help="the number of random mutants to try (all)")
    parser.add_argument("--seed", type=int, default=0, help="seed of the random choice (%(default)s)")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="forks at once (%(default)s)")
    options = parser.parse_args()
    paths = [path.resolve() for path in options.paths]
    chosen: dict[Path, set[int] | None] = {
        file: None for path in paths for file in sorted(path.rglob("*.py")) or [path]
    }
    chosen = chosen or {**changed_lines(options.since)}
    mutants = [mutant for path, lines in chosen.items() for mutant in mutants_of(path, lines)]
    if options.sample is not None:
        mutants = random.Random(options.seed).sample(mutants, min(options.sample, len(mutants)))
    if not mutants:
        print("there is nothing to mutate")
        return 0
    folders = {str(Path(mutant.path).relative_to(ROOT).parent) for mutant in mutants}
    tests = options.tests or {
        f"tests/{test}": None for folder in folders for test in TESTS.get(folder, "").split() or [""]
    }
    trial = Trial(mutants, options.jobs)
    begun, started = time.monotonic(), os.getpid()
    # A fork that gets here has not tried its mutant. A fork that could not collect its tests notices no change.
    if (ended := pytest.main([*OPTIONS, *tests], plugins=[trial])) or os.getpid() != started:
        print(f"the tests could not be run: pytest ended with {int(ended)}")
        return 3
    tried = len(mutants) - sum(mutant.name in trial.accepted for mutant in mutants)
    score = 100 * (1 - len(trial.survivors) / max(tried, 1))
    print(f"{len(mutants)} mutants in {time.monotonic() - begun:.0f} s, {len(mutants) - tried} of them accepted.")
    print(f"Of the others, tests notice {score:.1f} %; the goal is {GOAL} %.")
    return score < GOAL


if __name__ == "__main__":
    sys.exit(main())
