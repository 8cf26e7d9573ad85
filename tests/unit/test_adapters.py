"""Adapters, where no Docker is needed: secret files, the run lock, digests."""

import os
import stat
import subprocess
import sys
import time
from collections.abc import Generator
from pathlib import Path
from typing import cast

import pytest

from fakes import a_lock
from orchestrator.adapters import files, images, secret_files
from orchestrator.core.errors import ActionFailed, AlreadyRunning, BadConfiguration
from orchestrator.core.images import RECIPES, Recipe, a_build
from wire.order import Folder, Order

ME = (os.getuid(), os.getgid())


def test_secrets_are_random_private_and_made_once(tmp_path: Path) -> None:
    folder, other = tmp_path / "a", tmp_path / "b"
    secret_files.make_secrets(folder, ME)
    secret_files.make_secrets(other, ME)
    first = secret_files.read_secrets(folder)
    secret_files.make_secrets(folder, ME)
    assert secret_files.read_secrets(folder) == first
    assert set(first) == {
        "gateway_api_key",
        "webui_api_key",
        "engine_api_key",
        "webui_admin_password",
        "webui_secret_key",
    }
    assert not set(first.values()) & set(secret_files.read_secrets(other).values())
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    modes = {stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()}
    assert modes == {0o600}


def test_a_secret_made_too_public_is_made_private_again(tmp_path: Path) -> None:
    secret_files.make_secrets(tmp_path, ME)
    (tmp_path / "gateway_api_key").chmod(0o644)
    secret_files.make_secrets(tmp_path, ME)
    assert stat.S_IMODE((tmp_path / "gateway_api_key").stat().st_mode) == 0o600


def test_a_token_of_the_users_has_an_empty_private_file_that_is_left_alone(tmp_path: Path) -> None:
    secret_files.make_secrets(tmp_path, ME)
    token = tmp_path / "hf_token"
    assert token.read_text() == secret_files.read_given(tmp_path, "hf_token") == ""
    token.write_text("hf_abc\n")
    token.chmod(0o644)
    secret_files.make_secrets(tmp_path, ME)
    assert secret_files.read_given(tmp_path, "hf_token") == "hf_abc"
    assert stat.S_IMODE(token.stat().st_mode) == 0o600
    assert "hf_abc" not in secret_files.read_secrets(tmp_path).values()


def test_a_password_saved_in_another_encoding_is_refused_in_words(tmp_path: Path) -> None:
    (tmp_path / "webui_admin_password").write_bytes("密码".encode("gbk"))
    (tmp_path / "hf_token").write_bytes("hf_abc".encode("utf-16"))
    with pytest.raises(BadConfiguration, match="webui_admin_password can't be read") as password:
        secret_files.read_secrets(tmp_path)
    with pytest.raises(BadConfiguration, match="hf_token can't be read") as token:
        secret_files.read_given(tmp_path, "hf_token")
    assert "UTF-8" in password.value.next_step
    assert "UTF-8" in token.value.next_step


def test_an_order_is_private_and_read_back_as_written(tmp_path: Path) -> None:
    order = Order(lock=a_lock(), sources=(Folder(),), proxies={"https": "http://u:p@proxy:1"})
    path = tmp_path / "order.json"
    files.write_order(path, order, ME)
    assert files.read_order(path) == order
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert files.read_order(tmp_path / "other.json") is None


def test_an_empty_secret_left_by_a_power_cut_is_made_anew(tmp_path: Path) -> None:
    (tmp_path / "gateway_api_key").touch()
    secret_files.make_secrets(tmp_path, ME)
    assert secret_files.read_secrets(tmp_path)["gateway_api_key"].startswith("sk-")


def test_the_second_holder_of_the_run_lock_is_told_who_has_it(tmp_path: Path) -> None:
    with (
        files.run_lock(tmp_path, "up"),
        pytest.raises(AlreadyRunning) as refusal,
        files.run_lock(tmp_path, "down"),
    ):
        pass
    assert refusal.value.exit_code == 9
    assert f"process {os.getpid()}, python3 -m orchestrator up, since 20" in refusal.value.why


def test_a_killed_holder_leaves_no_stale_lock(tmp_path: Path) -> None:
    code = (
        "import os, signal, sys; from pathlib import Path; from orchestrator.adapters import files\n"
        "with files.run_lock(Path(sys.argv[1]), 'up'): os.kill(os.getpid(), signal.SIGKILL)"
    )
    path = os.pathsep.join(sys.path)
    died = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)],
        env={**os.environ, "PYTHONPATH": path},
        check=False,
    )
    assert died.returncode == -9
    with files.run_lock(tmp_path, "up"):
        pass


def test_an_images_digest_follows_its_sources_and_nothing_else(tmp_path: Path) -> None:
    recipe = Recipe(name="x", dockerfile="x/Dockerfile", sources=("x",))
    (tmp_path / "x" / "tests").mkdir(parents=True)
    source = tmp_path / "x" / "main.py"
    source.write_text("1")
    before = images.sources_digest(tmp_path, recipe)
    (tmp_path / "x" / "tests" / "test_x.py").write_text("2")
    (tmp_path / "y").write_text("3")
    assert images.sources_digest(tmp_path, recipe) == before
    source.write_text("2")
    changed = images.sources_digest(tmp_path, recipe)
    assert changed != before
    source.chmod(0o755)
    assert images.sources_digest(tmp_path, recipe) != changed


def test_one_file_of_another_images_counts_and_its_neighbours_do_not(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "shared").write_text("1")
    (tmp_path / "other" / "own").write_text("1")
    recipe = Recipe(name="x", dockerfile="x/Dockerfile", sources=("other/shared",))
    before = images.sources_digest(tmp_path, recipe)
    (tmp_path / "other" / "own").write_text("2")
    assert images.sources_digest(tmp_path, recipe) == before
    (tmp_path / "other" / "shared").write_text("2")
    assert images.sources_digest(tmp_path, recipe) != before


def test_an_images_name_follows_its_digest_and_its_arguments() -> None:
    recipe = RECIPES["gateway"]
    refs = {
        a_build(recipe, digest, arguments).ref
        for digest in ("a", "b")
        for arguments in ({}, {"BASE": "x"}, {"BASE": "y"})
    }
    assert len(refs) == 6
    assert a_build(recipe, "a", {}).ref.startswith("appliance/gateway:")


def test_what_containers_read_is_readable_whatever_umask_root_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    locks = tmp_path / "locks"
    before = os.umask(0o077)
    try:
        locks.mkdir()
        (locks / "cloned.json").write_text("{}", encoding="utf-8")
        files.write_rules(tmp_path / "rules.yaml", "[]")
        files.let_containers_read(locks)
    finally:
        os.umask(before)
    modes = [path.stat().st_mode & 0o777 for path in (locks, locks / "cloned.json")]
    assert modes == [0o755, 0o644]
    assert (tmp_path / "rules.yaml").stat().st_mode & 0o777 == 0o644


def test_a_build_uses_the_hosts_proxy_and_its_password_is_on_no_command_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    docker = tmp_path / "bin/docker"
    docker.parent.mkdir()
    docker.write_text(
        """#!/bin/sh
printf '%s\\n' "$@" >"$TOLD"
echo "proxy $http_proxy" >>"$TOLD"
echo '#1 exporting'
echo '#2 ERROR: no space left on device' >&2
exit "$ENDS"
""",
        encoding="utf-8",
    )
    docker.chmod(0o755)
    told = tmp_path / "told"
    monkeypatch.setenv("PATH", f"{docker.parent}:{os.environ['PATH']}")
    monkeypatch.setenv("TOLD", str(told))
    monkeypatch.delenv("http_proxy", raising=False)
    monkeypatch.setenv("HTTP_PROXY", "http://user:hushed@proxy.example:3128")
    monkeypatch.setenv("ENDS", "0")
    build = a_build(RECIPES["gateway"], "0" * 64, {"BASE": "a-base"})
    made = images.DockerImages(tmp_path, tmp_path / "logs", None, None)
    assert "#1 exporting" in list(made.build(build))
    words = told.read_text(encoding="utf-8").splitlines()
    *command, proxy = words
    assert command[:2] == ["buildx", "build"]
    assert {"--load", build.ref, "BASE=a-base", str(tmp_path)} <= set(command)
    assert "hushed" not in " ".join(command)
    assert command[command.index("http_proxy") - 1] == "--build-arg"
    assert proxy == "proxy http://user:hushed@proxy.example:3128"
    monkeypatch.setenv("ENDS", "1")
    with pytest.raises(ActionFailed, match="no space left on device"):
        list(made.build(build))


def test_a_build_that_nobody_waits_for_is_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    docker = tmp_path / "docker"
    docker.write_text("#!/bin/sh\necho $$\nexec sleep 60\n", encoding="utf-8")
    docker.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    made = images.DockerImages(tmp_path, tmp_path / "logs", None, None)
    lines = made.pull("an-image")
    process = Path("/proc") / next(lines)
    assert process.exists()
    began = time.monotonic()
    cast("Generator[str, None, None]", lines).close()
    assert time.monotonic() - began < 30
    assert not process.exists()


def test_builds_get_the_hosts_index_and_none_of_its_folders() -> None:
    listing = "\n".join(
        [
            ":env:.cert='/etc/ssl/certs/ca-certificates.crt'",
            ":env:.default-timeout='180'",
            "global.index-url='https://mirror.example/pypi'",
            "global.extra-index-url='file:///opt/pypi https://more.example/pypi'",
            "global.find-links='/opt/wheels'",
            "install.trusted-host='mirror.example'",
        ]
    )
    assert images.pip_settings(listing) == (
        "[global]\n"
        "index-url = https://mirror.example/pypi\n"
        "extra-index-url = https://more.example/pypi\n"
        "trusted-host = mirror.example\n"
        "timeout = 180\n"
    )


def test_of_pips_settings_those_count_that_count_for_pip_itself() -> None:
    """Its list is sorted by name; a variable comes before the command's section, that before all others."""
    listing = "\n".join(
        [
            ":env:.index-url='https://variable.example/pypi'",
            "download.timeout='7'",
            "global.index-url='https://file.example/pypi'",
            "global.timeout='60'",
            "install.timeout='99'",
        ]
    )
    assert images.pip_settings(listing) == (
        "[global]\nindex-url = https://variable.example/pypi\ntimeout = 99\n"
    )


def test_a_setting_of_several_lines_reaches_the_build_whole() -> None:
    listing = (
        r"global.extra-index-url='\nhttps://one.example/pypi\nhttps://two.example/pypi'"
        "\n"
        r"global.trusted-host='one.example\ntwo.example'"
    )
    assert images.pip_settings(listing) == (
        "[global]\n"
        "extra-index-url = https://one.example/pypi https://two.example/pypi\n"
        "trusted-host = one.example two.example\n"
    )
