"""The manifests for Kubernetes are valid, and their times and sizes fit the flags that they pass; the unit for systemd is valid.

SPDX-License-Identifier: Apache-2.0
"""

import os
import pathlib
import re
import shutil
import subprocess

import kubernetes_validate
import pytest
import yaml

SCRIPTS = pathlib.Path(__file__).resolve().parents[2] / "scripts"
PROGRAM = pathlib.Path(os.environ["SYSONE_BIN_DIR"]) / "sysone"
IN_IMAGE = "/opt/sysone/build/release/bin/sysone"
MEBI = 1 << 20


def documents(name):
    return list(yaml.safe_load_all((SCRIPTS / "k8s" / name).read_text()))


def pod_of(name, kind):
    return next(d for d in documents(name) if d["kind"] == kind)["spec"]["template"]["spec"]


PODS = {"deployment": pod_of("deployment.yaml", "Deployment")}


def bytes_of(quantity):
    number, unit = re.fullmatch(r"(\d+)(Mi|Gi)", quantity).groups()
    return int(number) * {"Mi": MEBI, "Gi": 1024 * MEBI}[unit]


def flag(container, name):
    return next(arg.removeprefix(f"--{name}=") for arg in container["args"] if arg.startswith(f"--{name}="))


def check(document):
    kubernetes_validate.validate(document, kubernetes_validate.latest_version(), strict=True)


@pytest.mark.parametrize("name", ["deployment.yaml"])
def test_every_document_has_the_fields_of_its_schema(name):
    for document in documents(name):
        check(document)


def test_a_field_that_no_schema_knows_is_noticed():
    service = documents("deployment.yaml")[0]
    service["spec"]["portz"] = []
    with pytest.raises(kubernetes_validate.ValidationError, match="portz"):
        check(service)


@pytest.mark.parametrize("pod", PODS.values(), ids=PODS.keys())
def test_the_pod_gives_what_its_flags_need(pod):
    container = pod["containers"][0]
    mounts = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
    volumes = {volume["name"]: volume["emptyDir"] for volume in pod["volumes"]}
    assert mounts["shm"] == "/dev/shm" and volumes["shm"]["medium"] == "Memory"
    arena = int(flag(container, "shm-arena-mb")) * MEBI
    room = bytes_of(volumes["shm"]["sizeLimit"])
    assert arena + 8 * MEBI <= room < bytes_of(container["resources"]["limits"]["memory"])
    hook = float(container["lifecycle"]["preStop"]["exec"]["command"][1])
    assert pod["terminationGracePeriodSeconds"] >= hook + float(flag(container, "shutdown-timeout")) + 5
    port = container["ports"][0]
    assert port["containerPort"] == int(flag(container, "port"))
    for probe, path in {"startupProbe": "/ready", "readinessProbe": "/ready", "livenessProbe": "/health"}.items():
        assert container[probe]["httpGet"] == {"path": path, "port": port["name"]}
    # --ready-timeout's default: before that sysone itself gives up, and says why.
    assert container["startupProbe"]["periodSeconds"] * container["startupProbe"]["failureThreshold"] >= 1800


@pytest.mark.parametrize("pod", PODS.values(), ids=PODS.keys())
def test_the_program_knows_every_flag_of_the_pod(pod):
    container = pod["containers"][0]
    assert container["command"] == [IN_IMAGE, "serve"]
    ran = subprocess.run([PROGRAM, "serve", *container["args"], "--help"], capture_output=True, text=True, timeout=60)
    assert ran.returncode == 0, ran.stderr


def test_the_service_finds_the_pods():
    service, deployment = documents("deployment.yaml")
    assert service["spec"]["selector"] == deployment["spec"]["template"]["metadata"]["labels"]
    assert deployment["spec"]["selector"]["matchLabels"] == service["spec"]["selector"]


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not here")
def test_systemd_finds_no_fault_in_the_unit(tmp_path):
    text = (SCRIPTS / "systemd/sysone.service").read_text()
    assert IN_IMAGE in text
    unit = tmp_path / "sysone.service"
    unit.write_text(text.replace(IN_IMAGE, str(PROGRAM)))
    ran = subprocess.run(["systemd-analyze", "verify", unit], capture_output=True, text=True, timeout=60)
    assert (ran.returncode, ran.stdout + ran.stderr) == (0, "")
    unit.write_text(unit.read_text().replace("KillMode", "KillMood"))
    ran = subprocess.run(["systemd-analyze", "verify", unit], capture_output=True, text=True, timeout=60)
    assert "KillMood" in ran.stderr


def test_the_unit_gives_more_time_to_stop_than_the_program_takes():
    text = (SCRIPTS / "systemd/sysone.service").read_text()
    assert int(re.search(r"^TimeoutStopSec=(\d+)$", text, re.MULTILINE)[1]) >= 30 + 10, "--shutdown-timeout's default is 30"
