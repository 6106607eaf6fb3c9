"""The manifests for Kubernetes are valid, and their times and sizes fit the flags that they pass; the unit for systemd is valid.

SPDX-License-Identifier: Apache-2.0
"""

import os
import pathlib
import re
import shutil
import subprocess

import jsonschema
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


LEADER_WORKER_SET = documents("leaderworkerset.yaml")[1]
TEMPLATES = {name: LEADER_WORKER_SET["spec"]["leaderWorkerTemplate"][name] for name in ("leaderTemplate", "workerTemplate")}
PODS = {"deployment": pod_of("deployment.yaml", "Deployment"), "leader": TEMPLATES["leaderTemplate"]["spec"]}

# What LeaderWorkerSet's own definition (v1) says of the fields around the pods' templates, which are checked as pods.
_POD_TEMPLATE = {"type": "object", "required": ["spec"], "properties": {"metadata": {"type": "object"}, "spec": {"type": "object"}},
                 "additionalProperties": False}
LEADER_WORKER_SET_SCHEMA = {
    "type": "object", "required": ["apiVersion", "kind", "metadata", "spec"], "additionalProperties": False,
    "properties": {
        "apiVersion": {"const": "leaderworkerset.x-k8s.io/v1"},
        "kind": {"const": "LeaderWorkerSet"},
        "metadata": {"type": "object", "required": ["name"]},
        "spec": {
            "type": "object", "required": ["leaderWorkerTemplate"], "additionalProperties": False,
            "properties": {
                "replicas": {"type": "integer", "minimum": 0},
                "startupPolicy": {"enum": ["LeaderCreated", "LeaderReady"]},
                "rolloutStrategy": {"type": "object"},
                "networkConfig": {"type": "object", "required": ["subdomainPolicy"]},
                "leaderWorkerTemplate": {
                    "type": "object", "required": ["workerTemplate"], "additionalProperties": False,
                    "properties": {
                        "size": {"type": "integer", "minimum": 1},
                        "restartPolicy": {"enum": ["None", "RecreateGroupOnPodRestart"]},
                        "leaderTemplate": _POD_TEMPLATE, "workerTemplate": _POD_TEMPLATE,
                    },
                },
            },
        },
    },
}


def bytes_of(quantity):
    number, unit = re.fullmatch(r"(\d+)(Mi|Gi)", quantity).groups()
    return int(number) * {"Mi": MEBI, "Gi": 1024 * MEBI}[unit]


def flag(container, name):
    return next(arg.removeprefix(f"--{name}=") for arg in container["args"] if arg.startswith(f"--{name}="))


def check(document):
    if document["kind"] == "LeaderWorkerSet":
        jsonschema.validate(document, LEADER_WORKER_SET_SCHEMA)
        for template in TEMPLATES.values():
            check({"apiVersion": "v1", "kind": "Pod", **template})
        return
    kubernetes_validate.validate(document, kubernetes_validate.latest_version(), strict=True)


@pytest.mark.parametrize("name", ["deployment.yaml", "leaderworkerset.yaml"])
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
    volumes = {volume["name"]: volume.get("emptyDir") for volume in pod["volumes"]}
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


def test_the_pods_of_a_set_run_the_same_command_with_a_group_each():
    leader, lender = (template["spec"]["containers"][0] for template in TEMPLATES.values())
    assert leader["command"] == lender["command"] and leader["args"] == lender["args"] and leader["image"] == lender["image"]
    assert int(flag(leader, "data-parallel-size")) == LEADER_WORKER_SET["spec"]["leaderWorkerTemplate"]["size"]
    ports = {port["name"]: port["containerPort"] for port in leader["ports"]}
    assert ports["link"] == int(flag(leader, "master-port"))
    assert flag(leader, "curve-keys") in [mount["mountPath"] for mount in leader["volumeMounts"]]


def test_the_services_find_the_pods():
    service = documents("leaderworkerset.yaml")[0]
    assert service["spec"]["selector"] == TEMPLATES["leaderTemplate"]["metadata"]["labels"]
    assert service["spec"]["selector"] != TEMPLATES["workerTemplate"]["metadata"]["labels"]
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
