"""Exchanges between processes that share one GPU: what they exchange is copied to memory, sent over gloo, and copied back.

NCCL refuses two ranks on one device, and gloo sends no tensors of a device to a single rank. This process group has every
exchange that training makes, so that all layouts run on one card: kernels, streams and dtypes are the real ones, only the
transport is not. Copies are made on the stream in which the exchange was asked for, as NCCL's would be.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import torch
from torch import Tensor, distributed

# its types differ from version to version, and leave out what is used here
c10d: Any = torch._C._distributed_c10d
STAGED = "staged"


class StagedGroup(c10d.ProcessGroup):  # type: ignore[misc]
    """A process group whose exchanges go through memory. Two names for one exchange are those of two versions of torch."""

    def __init__(self, store: Any, rank: int, size: int, timeout: timedelta) -> None:
        super().__init__(rank, size)
        self.gloo = c10d.ProcessGroupGloo(store, rank, size, timeout)

    @property
    def group_name(self) -> str:
        """The name by which compiled code and distributed tensors find the group."""
        return str(distributed.distributed_c10d._world.pg_names[self])

    def getBackendName(self) -> str:
        return STAGED

    def allreduce(self, tensors: list[Tensor], opts: Any = None) -> Any:
        """The sum (or what `opts` say) over the ranks, in place."""
        for tensor in tensors:
            host = _host(tensor)
            _wait(self.gloo.allreduce([host], _options(c10d.AllreduceOptions(), opts, "reduceOp")))
            tensor.copy_(host)
        return _done()

    def broadcast(self, tensors: list[Tensor], opts: Any = None) -> Any:
        """The root's tensor on every rank."""
        for tensor in tensors:
            host = _host(tensor)
            _wait(self.gloo.broadcast([host], _options(c10d.BroadcastOptions(), opts, "rootRank")))
            tensor.copy_(host)
        return _done()

    def allgather(self, outputs: list[list[Tensor]], inputs: list[Tensor], opts: Any = None) -> Any:
        """Every rank's tensor on every rank."""
        for out, own in zip(outputs, inputs, strict=True):
            host = _host(own)
            parts = [torch.empty_like(host) for _ in range(self.size())]
            _wait(self.gloo.allgather([parts], [host], c10d.AllgatherOptions()))
            for into, part in zip(out, parts, strict=True):
                into.copy_(part.view_as(into))
        return _done()

    def all_gather_single(self, output: Tensor, own: Tensor, opts: Any = None) -> Any:
        """The same into one tensor."""
        return self.allgather([list(output.view(self.size(), -1).unbind())], [own.reshape(-1)])

    def all_gather_single_coalesced(self, outputs: list[Tensor], inputs: list[Tensor], opts: Any = None) -> Any:
        """The same of several tensors."""
        for output, own in zip(outputs, inputs, strict=True):
            self.all_gather_single(output, own)
        return _done()

    def reduce_scatter_single(self, output: Tensor, whole: Tensor, opts: Any = None) -> Any:
        """This rank's part of the sum over the ranks."""
        host = _host(whole)
        _wait(self.gloo.allreduce([host], _options(c10d.AllreduceOptions(), opts, "reduceOp")))
        output.copy_(host.view(self.size(), -1)[self.rank()].view_as(output))
        return _done()

    def reduce_scatter_single_coalesced(self, outputs: list[Tensor], inputs: list[Tensor], opts: Any = None) -> Any:
        """The same of several tensors."""
        for output, whole in zip(outputs, inputs, strict=True):
            self.reduce_scatter_single(output, whole, opts)
        return _done()

    def all_to_all_single(
        self, output: Tensor, whole: Tensor, received: list[int], sent: list[int], opts: Any = None
    ) -> Any:
        """A part of each rank's tensor to every other rank."""
        host, arrived = _host(whole), torch.empty_like(output, device="cpu")
        _wait(self.gloo.alltoall_base(arrived, host, received, sent, c10d.AllToAllOptions()))
        output.copy_(arrived)
        return _done()

    def send(self, tensors: list[Tensor], to: int, tag: int) -> Any:
        """To one rank; goes on in the background."""
        hosts = [_host(tensor) for tensor in tensors]
        return _Transfer(self.gloo.send(hosts, to, tag), hosts)

    def recv(self, tensors: list[Tensor], source: int, tag: int) -> Any:
        """From one rank; the tensors are there after the wait."""
        hosts = [_host(tensor) for tensor in tensors]
        return _Transfer(self.gloo.recv(hosts, source, tag), hosts, tensors)

    def barrier(self, opts: Any = None) -> Any:
        """All ranks are here."""
        return self.allreduce([torch.zeros(1)])

    _allgather_base, allgather_into_tensor_coalesced = all_gather_single, all_gather_single_coalesced
    _reduce_scatter_base, reduce_scatter_tensor_coalesced = reduce_scatter_single, reduce_scatter_single_coalesced
    alltoall_base, allreduce_coalesced = all_to_all_single, allreduce


class _Transfer(c10d.Work):  # type: ignore[misc]
    """A transfer under way; what has arrived is copied to the device when it is waited for."""

    def __init__(self, work: Any, hosts: list[Tensor], into: list[Tensor] | None = None) -> None:
        super().__init__()
        self.work, self.hosts, self.into = work, hosts, into

    def wait(self, timeout: timedelta | None = None) -> bool:
        _wait(self.work)
        for tensor, host in zip(self.into or (), self.hosts, strict=False):
            tensor.copy_(host)
        return True


def _host(tensor: Tensor) -> Tensor:
    """A copy in memory."""
    return tensor.detach().to("cpu", copy=True).contiguous()


def _options(usual: Any, given: Any, name: str) -> Any:
    """Options for gloo with what was given of one of them."""
    if given is not None:
        setattr(usual, name, getattr(given, name))
    return usual


def _wait(work: Any) -> None:
    work.wait()


def _done() -> Any:
    """The work of an exchange that is over."""
    future: torch.futures.Future[None] = torch.futures.Future()
    future.set_result(None)
    return c10d._create_work_from_future(future)


def _make(store: Any, rank: int, size: int, timeout: timedelta) -> StagedGroup:
    return StagedGroup(store, rank, size, timeout)


distributed.Backend.register_backend(STAGED, _make, devices=["cpu", "cuda"])
