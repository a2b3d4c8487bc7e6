"""What the kernel counts of a process."""

from pathlib import Path


def cpu(pid: int) -> float:
    """Seconds of processor time it used so far."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / 100


def rss(pid: int) -> float:
    """MiB of memory it holds."""
    for line in Path(f"/proc/{pid}/status").read_text(encoding="utf-8").splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    return 0.0
