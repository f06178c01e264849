"""Custom resources of task managers that run as Slurm jobs: what a job asks for, and the addresses that it gets.

Slurm gives each job other GPUs, so their addresses are known only inside the job.
"""

from __future__ import annotations

from collections.abc import Mapping

from emberkeep.adapters.processes.resource_discovery import offered_addresses
from emberkeep.adapters.slurm.submission import gres_amounts
from emberkeep.base.configuration.options.resource_drivers import SLURM_GRES
from emberkeep.base.configuration.options.task_managers import RESOURCE_ADDRESSES, RESOURCE_DISCOVERY
from emberkeep.base.configuration.values import Configuration
from emberkeep.base.errors import Fatal
from emberkeep.slots.custom.addresses import amounts_of
from emberkeep.slots.custom.amounts import Amounts, amounts, fit, said

GPU = "gpu"
# What Slurm sets in a job with GPUs, for the libraries of their makers. The job's processes see the GPUs as these say.
_GPU_VARIABLES = ("CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "ZE_AFFINITY_MASK", "SLURM_JOB_GPUS")


def slurm_resources(configuration: Configuration) -> Amounts:
    """Return what each task manager offers: its configured addresses, and what its job gets from Slurm.

    Of ``--gres``, GPUs count, and resources for which there is a discovery script.
    """
    addresses, scripts = configuration[RESOURCE_ADDRESSES], configuration[RESOURCE_DISCOVERY]
    asked = gres_amounts(configuration[SLURM_GRES])
    found = {name: amount for name, amount in asked.items() if name == GPU or name in scripts}
    return amounts({**found, **{name: len(each) for name, each in addresses.items()}})


def given_addresses(configuration: Configuration, environ: Mapping[str, str]) -> str | None:
    """Return the value of ``taskmanager.resources.addresses`` inside a job; None if the configured one applies.

    Runs the discovery scripts. Blocks. Raises Fatal, InvalidInput: the job has less than the JobManager expects, and
    would start more and more of them in vain.
    """
    addresses, scripts = configuration[RESOURCE_ADDRESSES], configuration[RESOURCE_DISCOVERY]
    expected = slurm_resources(configuration)
    own = None
    if any(each.name == GPU for each in expected) and GPU not in addresses.keys() | scripts.keys():
        gpus = next((environ[name] for name in _GPU_VARIABLES if environ.get(name)), "")
        lists = {**addresses, GPU: tuple(each for each in gpus.split(",") if each)}
        own = ";".join(f"{name}={','.join(each)}" for name, each in sorted(lists.items()) if each)
        configuration = configuration.with_texts({RESOURCE_ADDRESSES.key: own}, "Slurm")
    offered = amounts_of(offered_addresses(configuration))
    if not fit(expected, offered):
        raise Fatal(
            f"this Slurm job has {said(offered) or 'no custom resources'}, and not {said(expected)}",
            hint=f"check {SLURM_GRES.key}, and Slurm's gres.conf on this node",
        )
    return own
