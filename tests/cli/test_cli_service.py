"""``restless serve``, ``audit``, ``backup`` and ``token``: what they print, and how they refuse."""

import json
import shutil
import socket
import sqlite3
import stat
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

import restless_bandits as rb
from restless_bandits._internal import optional_dependencies
from restless_bandits._internal.optional_dependencies import install_command
from restless_bandits.cli import main
from restless_bandits.service.api.server import Settings, check, first_token
from restless_bandits.service.optional_dependencies import shown_store
from restless_bandits.service.storage.store import open_store
from tests.service.clients import Inside, Process


@pytest.fixture
def restless(capsys, monkeypatch, tmp_path):
    """Run the command in this process and an empty folder: exit code, stdout, stderr."""
    monkeypatch.chdir(tmp_path)

    def run(*words):
        monkeypatch.setattr(sys, "argv", ["restless", *map(str, words)])
        with pytest.raises(SystemExit) as stopped:
            main()
        captured = capsys.readouterr()
        return stopped.value.code or 0, captured.out, captured.err

    return run


@pytest.fixture
def store(tmp_path):
    """A store in which something has happened."""
    inside = Inside(tmp_path)
    inside("POST", "/agents", {"name": "a", "arms": ["x", "y"], "learner": "round-robin", "seed": 1})
    for number in range(5):
        decision = inside("POST", "/agents/a/ask", {"request": str(number)}).json()["decision"]
        inside("POST", "/agents/a/tell", {"decision": decision, "state": 0, "reward": 1.0})
    inside.close()
    return tmp_path / "inside.db"


def refused(answer, *words):
    code, out, err = answer
    assert (code, out) == (2, "")
    assert err.startswith("Error: ")
    assert err.count("\n") == 1
    assert all(word in err for word in words), err
    return True


def test_tokens(restless, store):
    code, token, _ = restless("token", "make", "play", "--store", store, "--label", "the \x1b[31mdispatcher")
    assert code == 0
    assert open_and(store, lambda opened: opened.tokens.role_of(token.strip())) == "play"
    code, listed, _ = restless("token", "list", "--store", store, "--json")
    found = json.loads(listed)["tokens"]
    assert [one["role"] for one in found] == ["read", "play", "admin", "play"]
    assert token.strip() not in listed
    code, shown, _ = restless("token", "list", "--store", store)
    assert code == 0
    assert "\x1b[31m" not in shown
    assert restless("token", "revoke", found[-1]["id"], "--store", store)[0] == 0
    assert open_and(store, lambda opened: opened.tokens.role_of(token.strip())) is None
    assert refused(restless("token", "revoke", found[-1]["id"], "--store", store), "no token")
    other = json.loads(restless("token", "make", "read", "--store", store, "--json")[1])["token"]
    assert restless("token", "revoke", other, "--store", store)[0] == 0, "the token itself will do"
    assert refused(restless("token", "make", "king", "--store", store), "'king'", "admin")
    assert refused(restless("token", "list"), "restless.db", "restless serve")
    assert not Path("restless.db").exists()


def open_and(store, look):
    opened = open_store(str(store))
    try:
        return look(opened)
    finally:
        opened.close()


def test_audit_and_backup(restless, store):
    code, said, _ = restless("audit", store)
    assert (code, "5 decisions" in said) == (0, True), said
    assert json.loads(restless("audit", store, "--json", "--stored-plans")[1])["decisions"] == 5
    assert restless("backup", store, "copy.db")[0] == 0
    assert stat.S_IMODE(Path("copy.db").stat().st_mode) == 0o600
    assert restless("audit", "copy.db")[1] == said
    assert refused(restless("backup", store, "copy.db"), "copy.db", "already")
    with sqlite3.connect("copy.db") as changed:
        changed.execute("UPDATE events SET body = replace(body, '\"arms\":[0]', '\"arms\":[1]') WHERE kind = 'ask'")
    changed.close()
    code, said, _ = restless("audit", "copy.db")
    assert code == 1
    assert said.count("\n") == 1
    assert not json.loads(restless("audit", "copy.db", "--json")[1])["same"]
    assert refused(restless("audit", "nowhere.db"), "nowhere.db")


def test_a_store_moves_to_another_kind(restless, store):
    """By its rows, as to a database; here to SQLite again, which shows the same."""
    where = f"sqlite:///{store.parent / 'moved.db'}"
    assert json.loads(restless("backup", store, where, "--json")[1])["rows"] > 10
    assert restless("audit", "moved.db")[1] == restless("audit", store)[1]
    assert restless("token", "list", "--store", "moved.db")[1] == restless("token", "list", "--store", store)[1]
    assert refused(restless("backup", store, where), "already")
    assert refused(restless("backup", store, f"sqlite:///{store}"), "itself")
    assert refused(restless("backup", store, "postgresql+psycopg://127.0.0.1:1/no"), "cannot open the store")


def test_what_serve_refuses(restless, store, tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert refused(restless("serve", "--port", port), f"port {port}", "--port")
    assert not Path("restless.db").exists(), "nothing is made where nothing can be served"
    assert refused(restless("serve", "--host", "0.0.0.0", "--port", 0), "--tls-cert", "--behind-proxy")
    assert refused(restless("serve", "--host", "not a host", "--behind-proxy"), "not a host")
    assert refused(restless("serve", "--tls-cert", "x.pem"), "--tls-key")
    assert refused(restless("serve", "--tls-cert", store, "--tls-key", store), "not a certificate")
    assert refused(restless("serve", "--port", 70000), "70000")
    assert refused(restless("serve", "--port", 0, "--store", tmp_path), str(tmp_path))
    assert refused(restless("serve", "--port", 0, "--store", tmp_path / "no" / "such.db"), "such.db")
    assert refused(restless("serve", "--port", 0, "--store", "mysql://h/d"), "postgresql+psycopg")
    assert refused(restless("serve", "--port", 0, "--store", store, "--demo", "papr-1"), "papr-1")
    assert refused(restless("serve", "--port", 0, "--store", store, "--demo", "paper-1", "--speed", 0), "--speed")
    Path("text.db").write_text("no store at all, but long enough to be read as the head of one " * 20)
    assert refused(restless("serve", "--port", 0, "--store", "text.db"), "text.db")
    with sqlite3.connect(store) as changed:
        changed.execute("UPDATE about SET value = '999' WHERE key = 'schema'")
    changed.close()
    assert refused(restless("serve", "--port", 0, "--store", store), "later release")


def test_without_the_extra(restless, monkeypatch):
    monkeypatch.setattr(optional_dependencies, "find_spec", lambda name: None)
    for words in (["serve"], ["audit", "x.db"], ["backup", "x.db", "y.db"], ["token", "list"]):
        assert refused(restless(*words), install_command("service"))
    with pytest.raises(rb.ProblemError, match=r"httpx; pip install '.*\[service\]' brings it"):
        rb.Client(token="x")


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "localhost"])
def test_loopback_needs_no_encryption(host):
    settings = Settings(host=host)
    check(settings)
    with pytest.raises(rb.ProblemError, match="--tls-cert"):
        check(replace(settings, host="0.0.0.0"))


def test_the_first_token_is_for_its_owner_alone(tmp_path):
    place = tmp_path / "s.db"
    opened = open_store(str(place))
    try:
        token, file = first_token(opened, str(place))
        assert Path(file).read_text() == token + "\n"
        assert stat.S_IMODE(Path(file).stat().st_mode) == 0o600
        assert first_token(opened, str(place)) == (None, None)
    finally:
        opened.close()


def test_passwords_are_not_shown():
    assert shown_store("postgresql+psycopg://me:secret@h:5/d") == "postgresql+psycopg://me@h:5/d"
    assert shown_store("a/b.db") == "a/b.db"


def test_a_demo_over_tls_with_a_token_of_its_own(tmp_path):
    """As people start it: the token on a line of its own, at once, and a world that plays."""
    words, verify, scheme = [], None, "http"
    if shutil.which("openssl"):
        pair = ["-keyout", str(tmp_path / "key.pem"), "-out", str(tmp_path / "cert.pem")]
        made = [
            "openssl",
            "req",
            "-x509",
            "-newkey",
            "rsa:2048",
            "-nodes",
            "-days",
            "2",
            "-subj",
            "/CN=localhost",
            *pair,
        ]
        subprocess.run([*made, "-addext", "subjectAltName=IP:127.0.0.1"], check=True, capture_output=True)
        words = ["--tls-cert", str(tmp_path / "cert.pem"), "--tls-key", str(tmp_path / "key.pem")]
        verify, scheme = str(tmp_path / "cert.pem"), "https"
    with Process(tmp_path / "s.db", "--demo", "lms-suburban-l", "--speed", "100", *words) as server:
        assert server.url.startswith(f"{scheme}://127.0.0.1:")
        with rb.Client(server.url, server.token, verify=verify) as client:
            agent = client.agent("lms-suburban-l")
            seen = []
            for event in agent.follow(after=0):
                seen.append(event["kind"])
                if seen.count("tell") >= 10:
                    break
        assert seen[0] == "create"
        code, err = server.stop()
        assert (code, err) == (0, "")


def test_the_line_with_the_token(tmp_path):
    command = [sys.executable, "-m", "restless_bandits", "serve", "--port", "0", "--store", str(tmp_path / "s.db")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        first, _, third = (process.stdout.readline() for _ in range(3))
        process.terminate()
        rest, err = process.communicate(timeout=10)
    assert first.startswith("token: rb-")
    assert first.strip().count(" ") == 1
    assert "http://127.0.0.1:" in third
    assert (process.returncode, rest, err) == (0, "", "")
