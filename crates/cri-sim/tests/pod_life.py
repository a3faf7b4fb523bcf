"""Drives a pod through its whole life over CRI, with the gRPC that everybody uses, and checks every answer.

Usage: pod_life.py SOCKET DESCRIPTORS LOG_DIRECTORY

SOCKET is the path of a runtime's socket, DESCRIPTORS a file with a FileDescriptorSet of CRI, LOG_DIRECTORY one that is
there and empty.
"""

import pathlib
import sys
import threading
import urllib.parse

import grpc
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

DEADLINE = 30
IMAGE = "docker.io/library/greeter:1"


class Service:
    """A service, whose methods are called by name with the fields of their request."""

    def __init__(self, pool, channel, name):
        self.channel = channel
        self.methods = pool.FindServiceByName(name).methods_by_name
        self.name = name

    def __getattr__(self, method):
        description = self.methods[method]
        request = message_factory.GetMessageClass(description.input_type)
        response = message_factory.GetMessageClass(description.output_type)
        connect = self.channel.unary_stream if description.server_streaming else self.channel.unary_unary
        call = connect(
            f"/{self.name}/{method}",
            request_serializer=request.SerializeToString,
            response_deserializer=response.FromString,
        )
        return lambda **fields: call(request(**fields), timeout=DEADLINE)


def load(descriptors):
    files = descriptor_pb2.FileDescriptorSet.FromString(pathlib.Path(descriptors).read_bytes())
    pool = descriptor_pool.DescriptorPool()
    for file in files.file:
        pool.Add(file)
    return pool


def expect(what, got, wanted):
    if got != wanted:
        sys.exit(f"{what}: expected {wanted!r}, got {got!r}")
    print(f"ok: {what}")


def refused(what, code, text, call, **fields):
    try:
        call(**fields)
    except grpc.RpcError as error:
        expect(what, (error.code(), error.details()), (code, text))
    else:
        sys.exit(f"{what}: expected {code}, and it succeeded")


def authorities(socket):
    """How clients dial a socket: as gRPC does by itself, and with the socket's path in the place of a host."""
    return {
        "as gRPC has it": [],
        "the path": [("grpc.default_authority", socket)],
        "the path, percent-encoded": [("grpc.default_authority", urllib.parse.quote(socket, safe=""))],
        "the whole address": [("grpc.default_authority", f"unix://{socket}")],
        "localhost": [("grpc.default_authority", "localhost")],
    }


def live(pool, channel, logs):
    runtime = Service(pool, channel, "runtime.v1.RuntimeService")
    images = Service(pool, channel, "runtime.v1.ImageService")

    version = runtime.Version(version="v1")
    expect("the version", (version.runtime_name, version.runtime_api_version), ("crablet-sim", "v1"))
    conditions = {condition.type: condition.status for condition in runtime.Status().status.conditions}
    expect("the status", conditions, {"RuntimeReady": True, "NetworkReady": True})

    expect("an unknown image", images.ImageStatus(image={"image": IMAGE}).HasField("image"), False)
    reference = images.PullImage(image={"image": "greeter:1"}).image_ref
    image = images.ImageStatus(image={"image": IMAGE}).image
    expect("the pulled image", (image.id, list(image.repo_tags)), (reference, [IMAGE]))
    expect("the list of images", reference in [image.id for image in images.ListImages().images], True)

    seen, done = [], threading.Event()
    stream = runtime.GetContainerEvents()
    # The runtime has begun to listen when it answers with its first metadata.
    stream.initial_metadata()

    def listen():
        try:
            for event in stream:
                seen.append((event.container_id, event.container_event_type))
                # The last is the removal of the sandbox.
                if len(seen) == 8:
                    done.set()
        except grpc.RpcError:
            pass

    threading.Thread(target=listen, daemon=True).start()

    pod = {
        "metadata": {"name": "web", "uid": "uid-1", "namespace": "default", "attempt": 0},
        "log_directory": str(logs),
        "hostname": "web",
        "labels": {"app": "web"},
        "linux": {},
    }
    sandbox = runtime.RunPodSandbox(config=pod).pod_sandbox_id
    status = runtime.PodSandboxStatus(pod_sandbox_id=sandbox).status
    expect("the sandbox is ready", (status.state, bool(status.network.ip)), (0, True))
    refused(
        "a second sandbox of this name",
        grpc.StatusCode.UNKNOWN,
        f'failed to reserve sandbox name "web_default_uid-1_0": name "web_default_uid-1_0" is reserved for "{sandbox}"',
        runtime.RunPodSandbox,
        config=pod,
    )

    config = {
        "metadata": {"name": "main", "attempt": 0},
        "image": {"image": reference},
        "command": ["sh", "-c", "echo hello; echo trouble >&2; trap 'exit 7' TERM; sleep 1000 & wait"],
        "envs": [{"key": "NAME", "value": b"value"}],
        "labels": {"name": "main"},
        "log_path": "main/0.log",
    }
    container = runtime.CreateContainer(
        pod_sandbox_id=sandbox, config=config, sandbox_config=pod
    ).container_id
    state = lambda: runtime.ContainerStatus(container_id=container).status
    expect("the container is created", state().state, 0)
    runtime.StartContainer(container_id=container)
    expect("the container runs", (state().state, state().image.image), (1, IMAGE))
    expect("its log's path", state().log_path, f"{logs}/main/0.log")
    refused(
        "a second start",
        grpc.StatusCode.UNKNOWN,
        f'failed to set starting state for container "{container}": container is in CONTAINER_RUNNING state',
        runtime.StartContainer,
        container_id=container,
    )

    lines = (logs / "main/0.log").read_text().splitlines()
    expect("its log", [line.split(" ", 1)[1] for line in lines], ["stdout F hello", "stderr F trouble"])
    (logs / "main/0.log").rename(logs / "main/0.log.1")
    runtime.ReopenContainerLog(container_id=container)
    expect("its log after a rotation", (logs / "main/0.log").read_text(), "")

    answer = runtime.ExecSync(container_id=container, cmd=["sh", "-c", "echo $NAME; echo no >&2; exit 3"])
    expect("a command in it", (answer.stdout, answer.stderr, answer.exit_code), (b"value\n", b"no\n", 3))
    refused(
        "a command that takes too long",
        grpc.StatusCode.DEADLINE_EXCEEDED,
        "failed to exec in container: timeout 1s exceeded: context deadline exceeded",
        runtime.ExecSync,
        container_id=container,
        cmd=["sleep", "100"],
        timeout=1,
    )
    memory = runtime.ContainerStats(container_id=container).stats.memory
    expect("its memory is measured", memory.working_set_bytes.value > 0, True)
    listed = runtime.ListContainers(filter={"label_selector": {"name": "main"}}).containers
    expect("the list of containers", [item.id for item in listed], [container])

    runtime.StopContainer(container_id=container, timeout=10)
    expect("the container has ended", (state().state, state().exit_code, state().reason), (2, 7, "Error"))
    runtime.RemoveContainer(container_id=container)
    refused(
        "its status when it is gone",
        grpc.StatusCode.NOT_FOUND,
        f'an error occurred when try to find container "{container}": not found',
        runtime.ContainerStatus,
        container_id=container,
    )
    runtime.RemoveContainer(container_id=container)
    runtime.StopPodSandbox(pod_sandbox_id=sandbox)
    status = runtime.PodSandboxStatus(pod_sandbox_id=sandbox).status
    expect("the sandbox is stopped", (status.state, status.network.ip), (1, ""))
    runtime.RemovePodSandbox(pod_sandbox_id=sandbox)
    expect("no sandbox is left", list(runtime.ListPodSandbox().items), [])
    images.RemoveImage(image={"image": IMAGE})

    done.wait(DEADLINE)
    created, started, stopped, deleted = range(4)
    expect(
        "the events",
        seen,
        [
            (sandbox, created),
            (sandbox, started),
            (container, created),
            (container, started),
            (container, stopped),
            (container, deleted),
            (sandbox, stopped),
            (sandbox, deleted),
        ],
    )
    stream.cancel()


def main():
    socket, descriptors, logs = sys.argv[1:]
    pool = load(descriptors)
    for number, (name, options) in enumerate(authorities(socket).items()):
        print(f"authority: {name}")
        directory = pathlib.Path(logs) / str(number)
        directory.mkdir()
        with grpc.insecure_channel(f"unix:{socket}", options=options) as channel:
            live(pool, channel, directory)


main()
