"""No backend of the tree goes without the conformance kit."""

from pathlib import Path

from banlieue.sdk.registry import backend_names

TREE = Path(__file__).parents[2]
FOLDER = TREE / "test" / "conformance"


def test_every_installed_backend_has_a_conformance_module() -> None:
    names = backend_names()
    assert "simulated" in names
    for name in names:
        module = FOLDER / f"test_conformance_{name}.py"
        assert module.exists(), f"{module.relative_to(TREE)} has to subclass DriverConformance"
        assert "DriverConformance" in module.read_text(encoding="utf-8")
