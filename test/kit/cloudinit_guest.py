"""Run by Debian's own Python, where cloud-init is: what it makes of VMs' guestinfo keys.

Reads `{environments[], directory, boots}` as JSON from standard input and writes a list. Without
`boots`: what the VMware datasource found in each, the parts of user and vendor data as their
handlers get them, complaints of the schema, a Jinja template as kubeadm's configuration has it, and
network files of each renderer. With it, the environments are what one guest finds at its boots, one
after the other, on a disk that stays: what is on that disk after each.
"""

import contextlib
import importlib
import json
import multiprocessing
import os
import shutil
import sys
import types
import uuid
from pathlib import Path
from typing import Any

_RENDERERS = {"netplan": "debian", "eni": "debian", "networkd": "photon", "sysconfig": "rhel"}
"""Each with a distribution that uses it."""
_FILESYSTEM, _NETWORK = "FILESYSTEM", "NETWORK"
_PER_INSTANCE, _ALWAYS = "once-per-instance", "always"
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


def _become(environment: dict[str, str]) -> None:
    for name in [name for name in os.environ if name.startswith("VMX_")]:
        del os.environ[name]
    os.environ.update(environment)


def _read(environment: dict[str, str], directory: str) -> dict[str, Any]:
    _become(environment)
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


def _boot(environment: dict[str, str], root: str, run: str) -> dict[str, Any]:
    """One boot, in a process of its own: both stages that read the data, and modules after them."""
    _become(environment)
    _own_disk(root, run)
    with contextlib.redirect_stdout(sys.stderr):
        with contextlib.suppress(_module("sources").DataSourceNotFoundException):
            _stage(_FILESYSTEM).apply_network_config(bring_up=False)
        init = _stage(_FILESYSTEM, _NETWORK)
        told = init.datasource.get_instance_id()
        init.setup_datasource()
        init.update()
        consume = {"args": [_PER_INSTANCE], "freq": _PER_INSTANCE}
        if not init.cloudify().run("consume_data", init.consume_data, **consume)[0]:
            init.consume_data(_ALWAYS)
        init.activate_datasource()
        failed = _module("config.modules").Modules(init).run_section("modules")[1]
    if failed:
        raise RuntimeError(f"modules failed: {failed}")
    return {
        "instanceId": told,
        "disk": _files(Path(root) / "etc"),
        "runs": _text(Path(root) / "runs"),
    }


def _stage(*needs: str) -> Any:  # noqa: ANN401 - cloud-init's
    """cloud-init as far as it knows what instance this is, as its command does each time."""
    init = _module("stages").Init(ds_deps=list(needs))
    init.initialize()
    if _NETWORK not in needs:
        init.purge_cache()
    init.fetch(existing="trust" if _NETWORK in needs else "check")
    init.instancify()
    return init


def _configure(config: Any) -> None:  # noqa: ANN401 - as parsed
    place = Path(os.environ["DISK"]) / "etc" / "network"
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir()
    _rendered(config, str(place))


def _own_disk(root: str, run: str) -> None:
    """Everything a boot leaves behind goes there; of modules those whose work can be seen run."""
    os.environ["DISK"] = root
    etc = Path(root) / "etc"
    (etc / "ssh").mkdir(parents=True, exist_ok=True)
    if not (etc / "machine-id").exists():  # as systemd does, before cloud-init
        (etc / "machine-id").write_text(uuid.uuid4().hex, encoding="utf-8")
    paths = {"cloud_dir": f"{root}/cloud", "run_dir": run}
    config = {
        **_module("util").get_builtin_cfg(),
        "datasource_list": ["VMware", "None"],
        "def_log_file": "",
        "system_info": {"distro": "debian", "paths": paths},
        "modules": ["ssh", "runcmd", "scripts-user"],
        "ssh_genkeytypes": ["ed25519"],
        "updates": {"network": {"when": ["boot-new-instance", "boot"]}},  # as newer ones do
        "runcmd": [f"echo ran >>{root}/runs"],
    }
    _module("stages").fetch_base_config = lambda **_: config
    # It decides whether the network is configured; there is no interface to wait for, or to name.
    distro = _module("distros.debian").Distro
    distro.apply_network_config = lambda _, config, **__: _configure(config)
    networking = _module("distros.networking").LinuxNetworking
    networking.wait_for_physdevs = networking.apply_network_config_names = lambda *_: None
    ssh = _module("config.cc_ssh")
    ssh.KEY_FILE_TPL = f"{etc}/ssh/ssh_host_%s_key"
    ssh.glob = types.SimpleNamespace(glob=lambda it: Path(root).glob(it.lstrip("/")))
    ssh.apply_credentials = lambda *_: None  # users of this host are no matter here


def _files(folder: Path) -> dict[str, str]:
    return {
        str(path.relative_to(folder)): _text(path)
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8") if path.exists() else ""


def _boots(environments: list[dict[str, str]], directory: str) -> list[dict[str, Any]]:
    """What is on the disk of one guest after each of its boots."""
    root = Path(directory) / "disk"
    root.mkdir()
    found = []
    for number, keys in enumerate(environments):
        run = Path(directory) / f"run-{number}"  # which no boot leaves to the next
        run.mkdir()
        with multiprocessing.get_context("fork").Pool(1) as guest:
            found.append(guest.apply(_boot, (keys, str(root), str(run))))
    return found


if __name__ == "__main__":
    asked = json.load(sys.stdin)
    told = []
    if asked.get("boots"):
        told = _boots(asked["environments"], asked["directory"])
    for number, keys in enumerate(() if asked.get("boots") else asked["environments"]):
        folder = Path(asked["directory"]) / str(number)
        folder.mkdir()
        told.append(_read(keys, str(folder)))
    json.dump(told, sys.stdout)
