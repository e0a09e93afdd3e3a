"""A PostgreSQL cluster of our own, in a temporary folder, for as long as the tests run."""

import contextlib
import os
import shutil
import subprocess
import tempfile
from pathlib import Path


def find_programs():
    """The folder of PostgreSQL's programs, None where there are none."""
    found = shutil.which("initdb")
    if found:
        return Path(found).resolve().parent
    return max(Path("/usr/lib/postgresql").glob("*/bin"), default=None, key=lambda folder: int(folder.parent.name))


def reason_to_skip():
    if find_programs() is None:
        return "there is no initdb; apt-get install postgresql"
    if os.geteuid() == 0 and (shutil.which("runuser") is None or not _is_user("postgres")):
        return "PostgreSQL does not run as root, and there is no user postgres to run it as; useradd postgres"
    return None


def _is_user(name):
    import pwd

    with contextlib.suppress(KeyError):
        return bool(pwd.getpwnam(name))
    return False


@contextlib.contextmanager
def cluster():
    """Yield what makes the URL of a new database."""
    programs = find_programs()
    as_other = ["runuser", "-u", "postgres", "--"] if os.geteuid() == 0 else []
    # Sockets have short names.
    folder = Path(tempfile.mkdtemp(prefix="pg", dir="/tmp" if Path("/tmp").is_dir() else None))
    try:
        if as_other:
            shutil.chown(folder, "postgres")
        data = folder / "data"

        def run(program, *words):
            subprocess.run([*as_other, programs / program, *words], check=True, capture_output=True, cwd=folder)

        run("initdb", "-D", data, "-U", "tester", "--auth=trust", "--no-sync", "-E", "UTF8", "--locale=C")
        options = f"-c listen_addresses='' -c unix_socket_directories={folder} -c max_connections=60 -c fsync=off"
        run("pg_ctl", "-D", data, "-o", options, "-l", folder / "log", "-w", "start")
        try:
            names = iter(range(1000))

            def make():
                name = f"d{next(names)}"
                run("createdb", "-h", folder, "-U", "tester", name)
                return f"postgresql+psycopg://tester@/{name}?host={folder}"

            yield make
        finally:
            run("pg_ctl", "-D", data, "-m", "immediate", "-w", "stop")
    finally:
        shutil.rmtree(folder, ignore_errors=True)
