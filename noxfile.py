"""The checks of the project. `nox` runs them all; `nox -s tests lint` runs some."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import tarfile
from collections.abc import Iterable
from pathlib import Path

import nox

PYTHONS = ["3.11", "3.12", "3.13", "3.14", "3.15"]
PYPROJECT = nox.project.load_toml("pyproject.toml")

nox.options.sessions = ["tests", "oldest", "lint", "types", "floors", "docs", "wheel"]
# A developer's nox says which Pythons it leaves out.
nox.options.error_on_missing_interpreters = bool(os.environ.get("CI"))


def install(session: nox.Session, group: str, *, package: str = ".[all]") -> None:
    """Install the dependencies of *group*, and *package*, by default the tree."""
    tree = ["-e"] if package.startswith(".") else []
    session.install(*tree, package, *nox.project.dependency_groups(PYPROJECT, group))


@nox.session(python=PYTHONS)
def tests(session: nox.Session) -> None:
    """Run the suite on every installed Python, with the coverage gate."""
    install(session, "test")
    session.run("pytest", "-n", "2", "--cov", *session.posargs)


@nox.session(python=PYTHONS[0])
def oldest(session: nox.Session) -> None:
    """Run the suite with the oldest dependencies that pyproject.toml allows.

    First all tests with the oldest extras, which most tests need, then the tests of the client with the oldest core.
    """
    core, extras = PYPROJECT["project"]["dependencies"], PYPROJECT["project"]["optional-dependencies"].values()
    bounds = [*core, *(bound for extra in extras for bound in extra if ">=" in bound)]
    # All its parts must have the same release.
    bounds += [one for one in nox.project.dependency_groups(PYPROJECT, "test") if one.startswith("opentelemetry")]
    latest = {bound.partition(">=")[0]: bound for bound in bounds}
    del latest["yarl"]  # The sandbox's aiohttp needs a later version.
    install(session, "test")
    session.install(*pinned(latest.values()))
    session.run("pytest", "-n", "2", *session.posargs)
    session.install(*pinned(core))
    session.run("pytest", "-n", "2", *listed("tests/oldest.txt"))


def pinned(bounds: Iterable[str]) -> list[str]:
    """Return the oldest version that each of *bounds* allows."""
    return [bound.replace(">=", "==") for bound in bounds]


#: libfaketime leaves timers alone. It breaks `time.sleep`, so every Python of the environment waits in another way.
REAL_TIMERS = {"FAKETIME_DONT_FAKE_MONOTONIC": "1"}
SLEEPS = "import select, time; time.sleep = lambda seconds, wait=select.select: wait([], [], [], seconds) and None\n"
NO_LOCKS = "not somebody_has_locked_holds_no_other_up"
STRICTER = "aiohttp_conforms or on_an_injected_session or every_transport_comes_to_the_same"
#: Surroundings that have found defects: a command before pytest, options of pytest, and environment variables.
SURROUNDINGS: dict[str, tuple[list[str], list[str], dict[str, str]]] = {
    # The small letter of I has no dot, so CPython 3.11 does not recognize INSERT as insert.
    "turkish": ([], [], {"LC_ALL": "tr_TR.UTF-8"}),
    "sao-paulo": ([], [], {"TZ": "America/Sao_Paulo"}),
    "kathmandu": ([], [], {"TZ": "Asia/Kathmandu"}),
    # The lock time-out of PostgreSQL does not fire under libfaketime.
    "leap-day": (["faketime", "-m", "2028-02-29 11:00:00"], ["-p", "no:randomly", "-k", NO_LOCKS], REAL_TIMERS),
    "midnight": (
        ["faketime", "-m", "2026-12-31 23:58:00"],
        ["-p", "no:randomly", "-k", NO_LOCKS],
        {"TZ": "UTC", **REAL_TIMERS},
    ),
    "read-only-home": (["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups"], [], {"HOME": "/proc"}),
    "random-order": ([], ["-p", "randomly"], {}),
    # In this mode, the parser of aiohttp keeps rules that are declared as its deviations.
    "dev-mode": ([], ["-p", "no:randomly", "-k", f"not ({STRICTER})"], {"PYTHONDEVMODE": "1"}),
}


@nox.session(python=PYTHONS[0])
@nox.parametrize("name", [nox.param(name, id=name) for name in SURROUNDINGS])
def surroundings(session: nox.Session, name: str) -> None:
    """Run most of the suite in another locale, zone, user, order or mode, or on another day.

    Needs faketime, setpriv and localedef. `nox -s "surroundings(midnight)" -- tests/sandbox` runs a part.
    """
    install(session, "test")
    session.install("pytest-randomly")
    command, options, variables = SURROUNDINGS[name]
    folder = Path(session.create_tmp()).resolve()
    if name == "turkish":
        session.run("localedef", "-i", "tr_TR", "-f", "UTF-8", f"{folder}/tr_TR.UTF-8", external=True)
        variables = {**variables, "LOCPATH": str(folder)}
    if command[:1] == ["faketime"]:
        [packages] = Path(session.virtualenv.location).glob("lib/*/site-packages")
        (packages / "sleeps.pth").write_text(SLEEPS, encoding="utf-8")
    if not options:
        options = ["-p", "no:randomly"]
    tests = session.posargs or [*listed("tests/later.txt"), *listed("tests/oldest.txt"), "tests/sandbox", "tests/cli"]
    pytest = [f"{session.bin}/pytest", "-q", "-n", "2", "-p", "no:cacheprovider", *options]
    session.run(*command, *pytest, *dict.fromkeys(tests), env=variables, external=True)


@nox.session
def matrix(session: nox.Session) -> None:
    """Run the suite on the Pythons that the gate leaves out, and in all surroundings."""
    for python in ("3.12", "3.15"):
        session.notify(f"tests-{python}", session.posargs)
    for name in SURROUNDINGS:
        session.notify(f"surroundings({name})", session.posargs)


def listed(file: str) -> list[str]:
    """Return the tests that *file* names."""
    return Path(file).read_text(encoding="utf-8").split()


@nox.session(python=PYTHONS[0])
def canary(session: nox.Session) -> None:
    """Run the suite with the pre-releases of the core dependencies."""
    install(session, "test")
    session.install("--pre", "--upgrade", *PYPROJECT["project"]["dependencies"])
    session.run("pytest", "-n", "2", *session.posargs)


@nox.session
def lint(session: nox.Session) -> None:
    """Check the style of every file."""
    session.install(*nox.project.dependency_groups(PYPROJECT, "lint"))
    session.run("ruff", "check")
    session.run("ruff", "format", "--check")


@nox.session
def types(session: nox.Session) -> None:
    """Check the types inside the package, and the types of its public names."""
    install(session, "types")
    session.run("mypy")
    session.run("pyright")
    session.run("pyright", "--verifytypes", "paymentsdk", "--ignoreexternal")


@nox.session
def floors(session: nox.Session) -> None:
    """Check that every file imports only from the layers below it."""
    install(session, "test")
    session.run("lint-imports", "--no-cache")
    session.run("pytest", "tests/test_floors.py")


@nox.session
def docs(session: nox.Session) -> None:
    """Build the site into site/, offline and strictly, check it, and run README.md and the pages."""
    install(session, "docs")
    session.run("python", "-m", "zensical", "build", "--clean", "--strict")
    session.run("pytest", "tests/docs", "tests/tooling/test_site.py", *session.posargs)


@nox.session
def material(session: nox.Session) -> None:
    """Build the same mkdocs.yml with mkdocs-material. It is no gate: mkdocs only prints problems."""
    install(session, "site")
    session.install("mkdocs-literate-nav", "mkdocs-material")
    session.run("python", "-m", "mkdocs", "build", "--clean", "--site-dir", session.create_tmp(), *session.posargs)


@nox.session
def wheel(session: nox.Session) -> None:
    """Build the release, and run the main job and the suite with the wheel, outside the tree."""
    session.install("build")
    work = Path(session.virtualenv.location, "release")
    shutil.rmtree(work, ignore_errors=True)
    session.run("python", "-m", "build", "--outdir", str(work))
    [built], [source] = work.glob("*.whl"), work.glob("*.tar.gz")
    with tarfile.open(source) as archive:
        archive.extractall(work, filter="data")
    unpacked = work / source.name.removesuffix(".tar.gz")
    shutil.rmtree(unpacked / "paymentsdk")
    session.install(str(built))
    session.run("paymentsdk", "demo")
    install(session, "test", package=f"paymentsdk[all] @ {built.resolve().as_uri()}")
    with session.chdir(unpacked):
        session.run("pytest", "-n", "2", *session.posargs)


@nox.session
def frozen(session: nox.Session) -> None:
    """Freeze the command line with PyInstaller, and run the demo and a sandbox without this environment."""
    session.install(".[sandbox,reconcile]", "pyinstaller")
    work = Path(session.create_tmp()).resolve()
    script = work / "shop.py"
    script.write_text("from paymentsdk.cli import main\n\nraise SystemExit(main())\n", encoding="utf-8")
    options = ("--noconfirm", "--log-level", "WARN", "--distpath", str(work), "--workpath", str(work / "build"))
    session.run("pyinstaller", *options, "--specpath", str(work), str(script))
    session.run(str(work / "shop" / "shop"), "demo", env={"PATH": "/usr/bin:/bin"}, external=True)
    session.run(str(work / "shop" / "shop"), "sandbox", "exec", "--", "true", external=True)


#: What shows that an extra works, without any other extra.
EXTRAS = {
    "cli": "import argcomplete, paymentsdk.cli",
    "dask": "from paymentsdk.reconcile import DaskExecutor; DaskExecutor",
    "export": "import pyarrow.parquet, paymentsdk",
    "otel": "import paymentsdk.telemetry",
    "postgres": "from paymentsdk.journal import PostgresJournal; PostgresJournal('postgresql://127.0.0.1/x')",
    "qr": "import segno, paymentsdk",
    "reconcile": "from paymentsdk.reconcile import Book; Book.csv('README.md')",
    "sandbox": "from paymentsdk.sandbox import Sandbox; Sandbox()",
    "uvloop": "import uvloop, paymentsdk",
}


@nox.session(python=PYTHONS[0])
@nox.parametrize("versions", ["floors", "newest"])
@nox.parametrize("extra", [nox.param(extra, id=extra) for extra in EXTRAS])
def extras(session: nox.Session, extra: str, versions: str) -> None:
    """Install an extra alone, with its lowest and its newest versions, and use it."""
    session.install(f".[{extra}]")
    if versions == "floors":
        dependencies = PYPROJECT["project"]["optional-dependencies"]
        bounds = [bound for bound in dependencies[extra] if not bound.startswith("paymentsdk")]
        session.install(*pinned(bounds))
    session.run("python", "-W", "error", "-c", EXTRAS[extra])


@nox.session
def pyz(session: nox.Session) -> None:
    """Build dist/paymentsdk.pyz, a single file with the sandbox, for this Python and this kind of machine."""
    session.install("shiv")
    options = ("--reproducible", "--console-script", "paymentsdk", "--output-file", "dist/paymentsdk.pyz")
    Path("dist").mkdir(exist_ok=True)
    session.run("shiv", *options, "--python", "/usr/bin/env python3", ".[sandbox]")
    session.run("python", "dist/paymentsdk.pyz", "sandbox", "exec", "--", "true")


@nox.session
def compatibility(session: nox.Session) -> None:
    """Compare the public signatures with those of the last version."""
    install(session, "docs")
    session.run("python", "-m", "tests.compatibility")


@nox.session
def release(session: nox.Session) -> None:
    """Check this version, build it twice into dist/, and check that both are the same and that an index can show them.

    CONTRIBUTING.md says what to do before.
    """
    install(session, "docs")
    session.install("build", "twine")
    session.run("python", "-m", "tests.release")
    builds = [Path("dist"), Path(session.create_tmp(), "again")]
    for folder in builds:
        shutil.rmtree(folder, ignore_errors=True)
        session.run("python", "-m", "build", "--outdir", str(folder), silent=True)
    digests = [
        {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in folder.iterdir()} for folder in builds
    ]
    if digests[0] != digests[1]:
        session.error(f"two builds differ: {digests}")
    session.run("python", "-m", "tests.release", "dist")
    session.run("twine", "check", "--strict", *map(str, sorted(builds[0].iterdir())))


@nox.session
def sbom(session: nox.Session) -> None:
    """Write dist/sbom.json, a CycloneDX document of all packages that a user installs, with all extras."""
    session.install("cyclonedx-bom")
    installed = Path(session.create_tmp(), "installed")
    session.run("python", "-m", "venv", "--clear", str(installed))
    session.run(str(installed / "bin" / "pip"), "install", "-q", ".[all]", external=True)
    Path("dist").mkdir(exist_ok=True)
    options = ("--pyproject", "pyproject.toml", "--output-reproducible", "-o", "dist/sbom.json")
    session.run("cyclonedx-py", "environment", *options, str(installed / "bin" / "python"))


@nox.session
def mutants(session: nox.Session) -> None:
    """Change the package in one place at a time, and check that a test fails. The default is all changes since `main`.

    `nox -s mutants -- paymentsdk/_call/retry.py` tries a file, or a folder; `--help` says more.
    """
    install(session, "test")
    session.run("python", "tests/mutants.py", *session.posargs)


@nox.session
def lock(session: nox.Session) -> None:
    """Pin and hash the packages of the gate, for every Python and system, in tests/requirements.txt."""
    session.install("uv")
    session.run(
        *("uv", "pip", "compile", "-q", "pyproject.toml", "--all-extras", "--group", "gate"),
        *("--universal", "--python-version", PYTHONS[0], "--generate-hashes", "--no-annotate", "--no-header"),
        *("--no-emit-index-url", "--no-emit-find-links", "-o", "tests/requirements.txt", *session.posargs),
    )


@nox.session
def bench(session: nox.Session) -> None:
    """Run every benchmark and show the bars; `nox -s bench -- --only bench_call` runs one."""
    install(session, "bench")
    session.run("python", "-m", "benchmarks.report", "--run", *session.posargs)


@nox.session
def instructions(session: nox.Session) -> None:
    """Count the instructions of a call with valgrind; fail if a count is more than 3 % above the kept count."""
    install(session, "bench")
    session.run("python", "-m", "benchmarks.instructions", *(session.posargs or ["--check"]))


@nox.session
def fuzz(session: nox.Session) -> None:
    """Send valid and invalid requests for the OpenAPI document to a sandbox, for about a minute.

    `nox -s fuzz -- --max-examples 1000` searches further; `--seed` repeats a run.
    """
    install(session, "sandbox-fuzz")
    here = Path("tests/sandbox_openapi").resolve()
    config, hooks = str(here / "schemathesis.toml"), str(here / "hooks.py")
    # The contract gives two statuses for a preference without a valid token; the document can only say 401.
    options = ["--port", "0", "--json", "--policy", "denied_preference_status=401"]
    command = [f"{session.bin}/paymentsdk", "sandbox", *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as sandbox:
        try:
            platform = json.loads(sandbox.stdout.readline())
            # It keeps a cache in the working directory.
            session.chdir(session.create_tmp())
            session.run(
                *("st", "--config-file", config, "run", f"{platform['base_url']}/openapi.json"),
                *("--header", f"Authorization: Bearer {platform['access_token']}", *session.posargs),
                env={"SCHEMATHESIS_HOOKS": hooks},
            )
        finally:
            sandbox.terminate()
