#!/usr/bin/env python3
"""Stands in for torchrun, accelerate launch, srun, sbatch, mpirun, mpiexec and kubectl, whose name it is called by: starts
the processes that the real one would, on this machine, with the variables that the real one sets. Every host is this one.
TEST_PORT is a free port. Fails as soon as one process does."""

import argparse
import os
import pathlib
import re
import subprocess
import sys
import time


def run(commands):
    """Starts (command, variables) all at once; the first failure ends them all."""
    processes = [subprocess.Popen(command, env={**os.environ, **variables}) for command, variables in commands]
    status = 0
    while not status and any(p.poll() is None for p in processes):
        status = next((p.returncode for p in processes if p.poll()), 0)
        time.sleep(0.02)
    status = status or next((p.returncode for p in processes if p.returncode), 0)
    for p in processes:
        if p.poll() is None:
            p.terminate()
        p.wait()
    return status


def torch_ranks(command, first, here, size, port):
    return [
        (command, dict(RANK=str(first + i), WORLD_SIZE=str(size), LOCAL_RANK=str(i), LOCAL_WORLD_SIZE=str(here),
                       MASTER_ADDR="127.0.0.1", MASTER_PORT=port))
        for i in range(here)
    ]  # fmt: skip


def torchrun(arguments, port):
    parser = argparse.ArgumentParser()
    parser.add_argument("--standalone", action="store_true")
    parser.add_argument("--no-python", action="store_true", required=True)
    parser.add_argument("--nnodes", type=int, default=1)
    parser.add_argument("--node-rank", type=int, default=0)
    parser.add_argument("--nproc-per-node", type=int, required=True)
    parser.add_argument("--master-addr")
    parser.add_argument("--master-port")
    parser.add_argument("command", nargs=argparse.REMAINDER)
    o = parser.parse_args(arguments)
    return run(torch_ranks(o.command, o.node_rank * o.nproc_per_node, o.nproc_per_node, o.nnodes * o.nproc_per_node, port))


def accelerate(arguments, port):
    parser = argparse.ArgumentParser()
    parser.add_argument("--config_file", type=pathlib.Path)
    parser.add_argument("--multi_gpu", action="store_true")
    parser.add_argument("--num_processes", type=int)
    parser.add_argument("--no_python", action="store_true", required=True)
    parser.add_argument("command", nargs=argparse.REMAINDER)
    assert arguments.pop(0) == "launch"
    o = parser.parse_args(arguments)
    count = o.num_processes or int(re.search(r"(?m)^num_processes: (\d+)", o.config_file.read_text())[1])
    return run(torch_ranks(o.command, 0, count, count, port))


def mpi(name, arguments, port):
    parser = argparse.ArgumentParser()
    parser.add_argument("-np", "-n", type=int, required=True)
    parser.add_argument("--hostfile")
    parser.add_argument("-x", action="append", default=[])
    parser.add_argument("command", nargs=argparse.REMAINDER)
    o = parser.parse_args(arguments)
    names, job = ["PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"], "PMI_PORT"
    if name == "mpirun":
        names, job = ["OMPI_COMM_WORLD_" + part for part in ("RANK", "SIZE", "LOCAL_RANK", "LOCAL_SIZE")], "PMIX_NAMESPACE"
    common = dict(MASTER_ADDR="127.0.0.1", MASTER_PORT=port) if o.x else {job: port}
    return run([(o.command, common | dict(zip(names, map(str, (i, o.np, i, o.np))))) for i in range(o.np)])


def srun(arguments, port):
    parser = argparse.ArgumentParser()
    parser.add_argument("--nodes", type=int, default=int(os.environ.get("SLURM_NNODES", 1)))
    parser.add_argument("--ntasks", type=int)
    parser.add_argument("--ntasks-per-node", type=int, default=int(os.environ.get("SLURM_NTASKS_PER_NODE", 1)))
    parser.add_argument("command", nargs=argparse.REMAINDER)
    o = parser.parse_args(arguments)
    tasks = o.ntasks or o.nodes * o.ntasks_per_node
    common = dict(SLURM_STEP_NUM_TASKS=str(tasks), SLURM_STEP_ID="0", SLURM_STEP_NODELIST="localhost",
                  SLURM_STEP_NUM_NODES=str(o.nodes), SLURM_JOB_ID=port)  # fmt: skip
    return run([(o.command, common | dict(SLURM_PROCID=str(i), SLURM_LOCALID=str(i % (tasks // o.nodes)))) for i in range(tasks)])


def sbatch(arguments, _):
    """Options of the command line come before those of the script's #SBATCH lines."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--nodes", type=int)
    parser.add_argument("script", type=pathlib.Path)
    parser.add_argument("arguments", nargs=argparse.REMAINDER)
    o = parser.parse_args(arguments)
    asked = dict(re.findall(r"(?m)^#SBATCH --([\w-]+)(?:=(\S+))?$", o.script.read_text()))
    nodes = str(o.nodes or asked["nodes"])
    variables = dict(SLURM_NNODES=nodes, SLURM_NTASKS_PER_NODE=asked["ntasks-per-node"])
    return run([(["bash", str(o.script), *o.arguments], variables)])


def kubectl(arguments, port):
    """Runs the container's command of an Indexed Job once for every index."""
    assert arguments[:2] == ["apply", "-f"]
    manifest = pathlib.Path(arguments[2]).read_text()
    completions, parallelism = (int(re.search(rf"{key}: (\d+)", manifest)[1]) for key in ("completions", "parallelism"))
    assert completions == parallelism and "completionMode: Indexed" in manifest
    entry = re.search(r"command:\n\s*- /bin/sh\n\s*- -c\n(\s*)- ((?:.*\n)(?:\1  .*\n)*)", manifest)
    command = " ".join(entry[2].split())
    names = re.findall(r"(?m)^  name: (\S+)", manifest)
    service, job = names[0], names[1]
    assert f"--main_process_ip {job}-0.{service}" in command and f"subdomain: {service}" in manifest
    assert f"job-name: {job}" in manifest
    return run([(["/bin/sh", "-c", command], dict(JOB_COMPLETION_INDEX=str(i))) for i in range(completions)])


def main():
    name, arguments, port = pathlib.Path(sys.argv[0]).name, sys.argv[1:], os.environ["TEST_PORT"]
    if name in ("mpirun", "mpiexec"):
        return mpi(name, arguments, port)
    return {"torchrun": torchrun, "accelerate": accelerate, "srun": srun, "sbatch": sbatch, "kubectl": kubectl}[name](arguments, port)


if __name__ == "__main__":
    sys.exit(main())
