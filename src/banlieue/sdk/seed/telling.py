"""How a guest tells that its first boot is over: a small program that its seed brings along. Pure.

A backend says with which command the guest tells it something; all else is the same everywhere.
"""

from dataclasses import dataclass

DONE, FAILED = "done", "error"
"""The words a guest tells, as cloud-init has them."""

_HEADER = """\
#!/bin/sh
# From banlieue: tells the hypervisor when the first boot is over, so that secrets of the user data
# can be cleared there. Changes nothing else; ends at once where the hypervisor does not listen.
id='{identity}'
tell() {{
{tell}
}}
"""

_CLOUD_INIT = """\
case "$0" in
*/scripts/per-boot/*) cloud="${0%/scripts/per-boot/*}" ;;
*/instance*/scripts/*)
  # Runs once for an instance; a boot that follows an interrupted one tells it as well.
  cloud="${0%/instance*}"
  mkdir -p "$cloud/scripts/per-boot"
  cp "$0" "$cloud/scripts/per-boot/banlieue-first-boot"
  chmod 0700 "$cloud/scripts/per-boot/banlieue-first-boot"
  exit 0
  ;;
*) exit 0 ;;
esac
stamp="$cloud/data/banlieue-$id"
if [ -e "$stamp" ]; then
  tell done
  exit 0
fi
if [ "$1" != wait ]; then
  # What the user's data runs comes later in this very boot.
  setsid sh "$0" wait </dev/null >/dev/null 2>&1 &
  exit 0
fi
case "$(cloud-init status --wait 2>/dev/null)" in
*'status: done'*) touch "$stamp" && tell done ;;
*'status: error'*) tell error ;;
esac
exit 0
"""


@dataclass(frozen=True, slots=True)
class Ear:
    """How a guest of one backend tells a word: lines of shell, in which `$1` is it.

    They may use `$id`, the machine's UUID.
    """

    tell: str


def for_cloud_init(identity: str, ear: Ear) -> str:
    """Vendor data: a script that has every boot tell when cloud-init is done.

    It is a script of its own rather than `runcmd` or `write_files`, since those of the user's data
    take the place of the vendor's. It runs before what the user's data runs, so it waits for
    cloud-init's end in the background.
    """
    return _header(identity, ear) + _CLOUD_INIT


def for_units(identity: str, ear: Ear) -> str:
    """A program that is started when the system is up, where what ran before cannot fail."""
    return _header(identity, ear) + f"tell {DONE}\n"


def _header(identity: str, ear: Ear) -> str:
    lines = "\n".join(f"  {line}" for line in ear.tell.strip().splitlines())
    return _HEADER.format(identity=identity, tell=lines)
