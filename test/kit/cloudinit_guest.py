"""Run by Debian's own Python, where cloud-init is: what it makes of VMs' guestinfo keys.

Reads `{environments[], directory}` as JSON from standard input and writes a list: what the VMware
datasource found in each, the parts of user and vendor data as their handlers get them, complaints
of the schema, a Jinja template as kubeadm's configuration has it, and network files of each
renderer.
"""

import contextlib
import importlib
import json
import os
import sys
from pathlib import Path
from typing import Any

_RENDERERS = {"netplan": "debian", "eni": "debian", "networkd": "photon", "sysconfig": "rhel"}
"""Each with a distribution that uses it."""
_TEMPLATE = "## template: jinja\n{{ ds.meta_data.provider_id }} {{ v1.instance_id }}\n"


def _module(name: str) -> Any:  # noqa: ANN401 - a module that the checks cannot see
    return importlib.import_module(f"cloudinit.{name}")


def _parts(paths: Any, raw: str | None) -> list[dict[str, str]]:  # noqa: ANN401 - cloud-init's
    """Type and text of each part."""
    if raw is None:
        return []
    message = _module("user_data").UserDataProcessor(paths).process(raw)
    return [
        {"type": part.get_content_type(), "text": part.get_payload(decode=True).decode()}
        for part in message.walk()
        if part.get_content_maintype() != "multipart"
    ]


def _complaints(parts: list[dict[str, str]]) -> list[str]:
    """What the schema says of each part that is cloud-config."""
    schema, load = _module("config.schema"), _module("util").load_yaml
    found = []
    for part in parts:
        if part["type"] != "text/cloud-config":
            continue
        try:
            schema.validate_cloudconfig_schema(load(part["text"]), schema.get_schema(), strict=True)
        except schema.SchemaValidationError as error:
            found.append(str(error))
    return found


def _rendered(config: Any, directory: str) -> dict[str, dict[str, str]]:  # noqa: ANN401 - as parsed
    """Files of each renderer, by name."""
    found: dict[str, dict[str, str]] = {}
    _module("util").chownbyname = lambda *_: None  # whose files they are is no matter here
    for name, distro in _RENDERERS.items():
        root = Path(directory) / name
        root.mkdir()
        settings = getattr(_module(f"distros.{distro}").Distro, "renderer_configs", {})
        renderer = _module(f"net.{name}").Renderer(_within(settings.get(name, {})))
        state = _module("net.network_state").parse_net_config_data(config)
        with contextlib.redirect_stdout(sys.stderr):
            renderer.render_network_state(state, target=str(root))
        found[name] = {
            str(path.relative_to(root)): path.read_text(encoding="utf-8")
            for path in sorted(root.rglob("*"))
            if path.is_file()
        }
    return found


def _within(settings: dict[str, Any]) -> dict[str, Any]:
    """Settings that start no program, and whose paths stay within the directory they are put in."""
    paths = {key: it.lstrip("/") for key, it in settings.items() if isinstance(it, str)}
    if "network_conf_dir" in paths:  # this one is put behind the directory as it is
        paths["network_conf_dir"] = f"/{paths['network_conf_dir']}"
    return {**settings, **paths, "postcmds": False}


def _template(instance_id: str, metadata: dict[str, Any]) -> str:
    jinja = _module("handlers.jinja_template")
    facts = {"ds": {"meta_data": metadata}, "v1": {"instance_id": instance_id}}
    variables = jinja.convert_jinja_instance_data(facts, include_key_aliases=True)
    return str(jinja.render_jinja_payload(_TEMPLATE, "test", variables)).strip()


def _read(environment: dict[str, str], directory: str) -> dict[str, Any]:
    for name in [name for name in os.environ if name.startswith("VMX_")]:
        del os.environ[name]
    os.environ.update(environment)
    paths = _module("helpers").Paths({"cloud_dir": directory, "run_dir": directory})
    source = _module("sources.DataSourceVMware").DataSourceVMware({}, None, paths)
    if not source._get_data():
        return {"found": False}
    user, vendor = _parts(paths, source.userdata_raw), _parts(paths, source.vendordata_raw)
    config = source.network_config if "network" in source.metadata else None
    metadata = {key: value for key, value in source.metadata.items() if key != "network"}
    return {
        "found": True,
        "instanceId": source.get_instance_id(),
        "hostname": metadata.get("local-hostname"),
        "keys": source.get_public_ssh_keys(),
        "userData": user,
        "vendorData": vendor,
        "complaints": _complaints([*user, *vendor]),
        "network": config,
        "files": _rendered(config, directory) if config else {},
        "template": _template(source.get_instance_id(), metadata),
    }


if __name__ == "__main__":
    asked = json.load(sys.stdin)
    told = []
    for number, keys in enumerate(asked["environments"]):
        folder = Path(asked["directory"]) / str(number)
        folder.mkdir()
        told.append(_read(keys, str(folder)))
    json.dump(told, sys.stdout)
