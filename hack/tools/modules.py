"""Where the sources of a pinned Go module lie: manifests and CRDs are read out of them."""

import subprocess
from pathlib import Path

from hack.tools import gobuild
from hack.tools.catalog import TOOLS_DIRECTORY, ToolError


def module_directory(module_folder: str, import_path: str, sources: Path = TOOLS_DIRECTORY) -> Path:
    """The read-only folder of a Go module in Go's module cache; downloads the module if necessary.

    Args:
        module_folder: Folder under `hack/tools` whose go.mod pins the module.
        import_path: Path of the module, such as `sigs.k8s.io/cluster-api`.
        sources: The folder `hack/tools`.

    Raises:
        ToolError: Go is missing or too old, the go.mod pins no such module, or the module cannot
            be downloaded; the message says what to do.
    """
    module = sources / module_folder
    if not (module / "go.mod").is_file():
        raise ToolError(f"{module} holds no go.mod, so it pins no {import_path}")
    go = gobuild.require_go(module)
    found = _ask(go, ["list", "-m", "-f", "{{.Dir}}", import_path], module, import_path)
    if not found:
        # The checksums of go.sum hold for this download too.
        _ask(go, ["mod", "download", import_path], module, import_path)
        found = _ask(go, ["list", "-m", "-f", "{{.Dir}}", import_path], module, import_path)
    directory = Path(found)
    if not found or not directory.is_dir():
        raise ToolError(
            f"Go has no folder for {import_path}, though it says to have downloaded it; "
            f"run `go clean -modcache` and try again"
        )
    return directory


def _ask(go: str, arguments: list[str], module: Path, import_path: str) -> str:
    answer = subprocess.run(
        [go, *arguments],
        cwd=module,
        env=gobuild.environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    if not answer.returncode:
        return answer.stdout.strip()
    if "not a known dependency" in answer.stderr:
        raise ToolError(f"{module / 'go.mod'} pins no module {import_path}; add it there")
    raise gobuild.failure(import_path, answer.stderr.splitlines(), "fetching")
