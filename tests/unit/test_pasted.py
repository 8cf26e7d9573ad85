"""Outputs as they arrive after an editor, a terminal or another system had them in its hands."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from orchestrator.adapters.host import load_facts
from orchestrator.cli import main
from orchestrator.core.errors import BadConfiguration
from orchestrator.core.facts import Disk, HostFacts
from orchestrator.core.probes.captures import facts_of
from orchestrator.core.probes.commands import COMMANDS
from orchestrator.core.probes.pasted import text_of
from pastes import DF, FREE, TWO_SOCKETS

HOSTS = Path(__file__).parents[1] / "fixtures" / "hosts"
WEIGHTS = Path("weights")
PROMPTS = (
    "root@gpu01:~# {}",
    "user@gpu-01.example.org:/data/my models$ {}",
    "[root@gpu01 ~]# {}",
    "(base) [admin@node1 weights]$ {}",
    "user@mac ~ % {}",
    "bash-5.1# {}",
    "$ {}",
    "# {}",
    "➜  ~ {}",
    "PS C:\\Users\\lab> {}",
    "C:\\Users\\lab>{}",
    "\x1b]0;root@gpu01: ~\x07\x1b[?2004hroot@gpu01:~# {}",
)
ONE_LINERS = {
    "nproc.txt": "64\n",
    "governor.txt": "powersave\n",
    "numa-balancing.txt": "1\n",
    "uname.txt": "Linux gpu01 6.8.0-71-generic #71-Ubuntu SMP x86_64 x86_64 x86_64 GNU/Linux\n",
    "thp.txt": "always [madvise] never\n",
    "memory.max": "68719476736\n",
    "cpu.max": "1600000 100000\n",
    "docker-info.txt": json.dumps({"ServerVersion": "28.2.2", "CgroupDriver": "systemd"}) + "\n",
}
CAPTURES = TWO_SOCKETS | ONE_LINERS


def read_as(captures: dict[str, str], noise: Callable[[str], bytes]) -> HostFacts:
    return facts_of({name: text_of(noise(text)) for name, text in captures.items()})


def prompted(prompt: str) -> Callable[[str], bytes]:
    """The command above, and below it the prompt that waits for the next one."""
    line = prompt.format("lscpu && df -h | less")
    return lambda text: f"{line}\n{text}{prompt.format('')}".encode()


@pytest.mark.parametrize("prompt", PROMPTS)
def test_lines_of_a_prompt_are_no_output(prompt: str) -> None:
    assert read_as(CAPTURES, prompted(prompt)) == facts_of(CAPTURES)


def test_a_line_of_output_that_looks_much_like_a_prompt_stays() -> None:
    text = "me@nas:/export  20T  8.0T   12T  40% /mnt/nas\nC:\\   930G 400G 530G 43% /mnt/c\n"
    assert text_of(text.encode()) == text


@pytest.mark.parametrize(
    "noise",
    [
        lambda text: text.removesuffix("\n").encode(),
        lambda text: text.replace("\n", "\r\n").encode(),
        lambda text: text.encode("utf-8-sig"),
        lambda text: text.encode("utf-16"),  # with its mark, as Notepad and PowerShell write it
        lambda text: text.encode("utf-16-le"),
        lambda text: text.encode("utf-16-be"),
        lambda text: text.encode("gb18030"),
        lambda text: text.replace(" ", "\u00a0").encode(),  # from a web page
        lambda text: b"\n\n" + text.encode() + b"\n\n",
        lambda text: text.replace("\n", "\r\n").encode("utf-16").removesuffix(b"\n\0"),
    ],
)
@pytest.mark.parametrize("host", ["", "12-epyc7443-german", "13-ryzen7840h-chinese-4060"])
def test_what_editors_and_other_systems_do_to_a_text_changes_nothing_in_it(
    noise: Callable[[str], bytes], host: str
) -> None:
    files = [path for path in (HOSTS / host).glob("*.txt") if host]
    captures = {path.name: path.read_text(encoding="utf-8") for path in files} or CAPTURES
    read, whole = read_as(captures, noise), facts_of(captures)
    # This lscpu ends with the flags: without a line break they may go on, which is told below.
    ends = {"flags_complete": read.cpu.flags_complete} if "german" in host else {}
    assert read == whole.model_copy(update={"cpu": whole.cpu.model_copy(update=ends)})


def test_a_list_of_flags_without_an_end_may_go_on_and_other_last_lines_do_not() -> None:
    flags = b"Flags: fpu vme de pse tsc msr pae mce cx8 apic sep mtrr pge avx2"
    assert facts_of({"lscpu.txt": text_of(flags)}).cpu.amx is None
    assert facts_of({"lscpu.txt": text_of(flags + b"\n")}).cpu.amx is False


def test_a_text_that_is_cut_inside_a_character_is_still_what_it_was() -> None:
    text = "架构： x86_64\n座： 2\n型号名称： 海光".encode()
    assert facts_of({"lscpu.txt": text_of(text[:-1])}).cpu.architecture == "x86_64"
    assert text_of(b"") == ""


def a_folder(folder: Path, captures: dict[str, str]) -> Path:
    folder.mkdir(exist_ok=True)
    for name, text in captures.items():
        (folder / name).write_text(text, encoding="utf-8")
    return folder


def test_a_known_file_that_says_nothing_is_told_with_the_command_that_fills_it(
    tmp_path: Path,
) -> None:
    wrong = {"df.txt": "df: command not found\n", "free.txt": "", "numactl.txt": FREE}
    told = load_facts(a_folder(tmp_path, TWO_SOCKETS | wrong), WEIGHTS).warnings
    assert told == (
        "df.txt: nothing in it was understood; it is to hold what `df -hT` prints",
        "free.txt: nothing in it was understood; it is to hold what `free -h` prints",
        "numactl.txt: nothing in it was understood; it is to hold what `numactl --hardware` prints",
    )


def test_files_of_other_names_are_told_and_hidden_ones_are_not(tmp_path: Path) -> None:
    folder = a_folder(tmp_path, TWO_SOCKETS | {"nvidia_smi.txt": "", ".DS_Store": ""})
    assert load_facts(folder, WEIGHTS).warnings == (
        "not read, its name is not known: nvidia_smi.txt",
    )


def test_what_is_understood_is_not_told(tmp_path: Path) -> None:
    # Each on its own says nothing of the host, or only together with another.
    quiet = {
        "cpu.max": "max 100000\n",
        "memory.max": "max\n",
        "memory.stat": "anon 1\nactive_file 2\n",
        "memory.current": "4096\n",
        "cpu.cfs_quota_us": "-1\n",
        "cpu.cfs_period_us": "100000\n",
        "buddyinfo.txt": "Node 0, zone   Normal      1      0      1\n",
        "topo.txt": "\tGPU0\tCPU Affinity\tNUMA Affinity\nGPU0\t X \t1-3\t0\n",
    }
    assert load_facts(a_folder(tmp_path, quiet), WEIGHTS).warnings == ()
    for host in HOSTS.iterdir():
        told = load_facts(host, WEIGHTS).warnings
        assert not [
            warning for warning in told if "case.json" not in warning and "caches" not in warning
        ]


def test_a_folder_without_any_known_name_is_refused_with_the_names_that_are_known(
    tmp_path: Path,
) -> None:
    with pytest.raises(BadConfiguration) as refusal:
        load_facts(a_folder(tmp_path, {"holiday.txt": "sun"}), WEIGHTS)
    for name in COMMANDS:
        assert name in refusal.value.why


def test_the_disk_is_chosen_for_the_folder_of_the_weights(tmp_path: Path) -> None:
    folder = a_folder(tmp_path / "pastes", TWO_SOCKETS)
    for weights, path in (("weights", "/data"), ("/srv/weights", "/"), ("/data/w", "/data")):
        disk = load_facts(folder, Path(weights)).facts.disk
        assert disk is not None
        assert disk.path == path
    # The same where they were saved as one file meanwhile.
    saved = tmp_path / "facts.json"
    saved.write_text(facts_of({"df.txt": DF}).model_dump_json(), encoding="utf-8")
    chosen = load_facts(saved, Path("/srv/weights")).facts.disk
    assert chosen is not None
    assert chosen.path == "/"
    own = HostFacts(disk=Disk(path="/own", free_bytes=1))
    saved.write_text(own.model_dump_json(), encoding="utf-8")
    assert load_facts(saved, WEIGHTS).facts.disk == own.disk


def test_recommend_takes_pasted_outputs_and_tells_what_it_could_not_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = a_folder(tmp_path, TWO_SOCKETS | {"numactl.txt": "bash: numactl: command not found\n"})
    (folder / "df.txt").write_bytes(f"root@gpu01:~# df -h\r\n{DF}root@gpu01:~#".encode("utf-16"))
    assert main(["recommend", "--facts", str(folder)]) == 0
    told = capsys.readouterr()
    assert "Recommended: deepseek-r1-q4km\n" in told.out
    assert "warning: numactl.txt: nothing in it was understood" in told.err
    assert "df.txt" not in told.err


def test_the_disk_that_is_meant_is_shown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = a_folder(tmp_path, TWO_SOCKETS)
    main(["doctor", "--facts", str(folder), "--only", "disk", "--profile", "deepseek-r1-q4km"])
    assert "2300.0 GB on /data" in capsys.readouterr().out
