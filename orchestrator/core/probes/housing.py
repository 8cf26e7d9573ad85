"""Does this process live in a container, and of which kind?"""

from collections.abc import Mapping

# Where each kind of container leaves its mark, the most telling first.
MARKS = {
    "var/run/secrets/kubernetes.io": "kubernetes",
    ".dockerenv": "docker",
    "run/.containerenv": "podman",
    "dev/.lxc": "lxc",
}
NAMED_IN = "run/systemd/container"
GROUPS = "proc/1/cgroup"
MOUNTS = "proc/mounts"
IN_GROUPS = {"kubepods": "kubernetes", "docker": "docker", "libpod": "podman", "lxc": "lxc"}


def container_of(present: Mapping[str, str]) -> str | None:
    """Of the files and folders above, those that exist, with their text; None where none does."""
    if not present:
        return None
    marked = next((kind for mark, kind in MARKS.items() if mark in present), "")
    named = present.get(NAMED_IN, "").strip()
    groups = present.get(GROUPS, "")
    grouped = next((kind for word, kind in IN_GROUPS.items() if word in groups), "")
    # LXC shows its containers a /proc of their own, file by file.
    shown = "lxc" if "\nlxcfs /proc/" in f"\n{present.get(MOUNTS, '')}" else ""
    return marked or named or grouped or shown
