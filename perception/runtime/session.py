"""One loaded ONNX file, on the device that was asked for."""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from perception.errors import InputError
from perception.extras import install_command

PROVIDERS = {
    "cpu": "CPUExecutionProvider",
    "cuda": "CUDAExecutionProvider",
    "tensorrt": "TensorrtExecutionProvider",
    "openvino": "OpenVINOExecutionProvider",
}
"""Device names of this package and ONNX Runtime's names for them."""


class Session:
    """An ONNX Runtime session whose provider is the requested one, or an error.

    path: the model file. device: a key of PROVIDERS. allow_fallback: run on the CPU, with one
    warning, where the device is not to be had. threads: threads inside one operator; None takes
    one for each core that this process may use.
    Raises InputError for a missing file, a file that is no ONNX model, an unknown device, or a
    device that is not available.
    """

    def __init__(
        self,
        path: str | Path,
        device: str = "cpu",
        *,
        allow_fallback: bool = False,
        threads: int | None = None,
    ) -> None:
        self.path = Path(path)
        if device not in PROVIDERS:
            raise InputError(f"device is {device!r}, expected one of {', '.join(PROVIDERS)}")
        if threads is not None and threads < 0:
            raise InputError(f"threads is {threads}, expected a whole number above 0")
        if not self.path.is_file():
            raise InputError(f"{path}: no such model file")
        self.device = device
        self._session = self._open(PROVIDERS[device], allow_fallback, threads)
        self.provider: str = self._session.get_providers()[0]
        self._require(PROVIDERS[device], allow_fallback)
        self.metadata: Mapping[str, str] = dict(self._session.get_modelmeta().custom_metadata_map)
        self.inputs: dict[str, tuple[int | str | None, ...]] = {
            i.name: tuple(i.shape) for i in self._session.get_inputs()
        }
        self.output_names: list[str] = [o.name for o in self._session.get_outputs()]

    def _open(self, provider: str, allow_fallback: bool, threads: int | None) -> Any:
        # Imported here, so that geometry and data sets work without a runtime installed.
        try:
            import onnxruntime
        except ImportError:
            raise InputError(
                f"ONNX Runtime is not installed: {install_command('cpu')} (or [gpu], [openvino])"
            ) from None
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads or len(os.sched_getaffinity(0))
        options.inter_op_num_threads = 1
        # Threads that spin while they wait take the cores that camera and middleware need; not
        # spinning costs 0.3 ms a frame, spinning up to 20 ms when cores are shared.
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        options.log_severity_level = 3
        chosen = [provider] if provider == PROVIDERS["cpu"] else [provider, PROVIDERS["cpu"]]
        available = onnxruntime.get_available_providers()
        if provider not in available:
            self._refuse_or_warn(
                provider, f"this ONNX Runtime has only {', '.join(available)}", allow_fallback
            )
            chosen = [PROVIDERS["cpu"]]
        try:
            return onnxruntime.InferenceSession(
                str(self.path), sess_options=options, providers=chosen
            )
        except Exception as error:  # the runtime raises a class of its own for each cause
            detail = " ".join(str(error).split())[:300]
            raise InputError(f"{self.path}: not an ONNX model that can run: {detail}") from None

    def _require(self, provider: str, allow_fallback: bool) -> None:
        """A GPU build without its libraries falls back by itself; notice that too."""
        if self.provider != provider and PROVIDERS["cpu"] == self.provider:
            import onnxruntime

            if provider in onnxruntime.get_available_providers():
                self._refuse_or_warn(provider, "its libraries did not load", allow_fallback)

    def _refuse_or_warn(self, provider: str, reason: str, allow_fallback: bool) -> None:
        text = f"device {self.device!r} needs {provider}, which is not available: {reason}"
        if not allow_fallback:
            raise InputError(f"{text}; choose device 'cpu' or allow the fallback")
        warnings.warn(f"{text}; running on the CPU", RuntimeWarning, stacklevel=4)

    def run(self, feeds: Mapping[str, npt.NDArray[Any]]) -> dict[str, npt.NDArray[Any]]:
        """Run once: input name -> array to output name -> array, in the file's order."""
        values = self._session.run(self.output_names, dict(feeds))
        return dict(zip(self.output_names, (np.asarray(v) for v in values), strict=True))
