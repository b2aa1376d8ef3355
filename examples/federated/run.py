"""Three boards learn the digits together; one of them is killed and comes back.

    python -m examples.federated.run [OUT [ROUNDS]]

A SuperLink and three SuperNodes run as separate processes, as they would on four machines. Each
board has a third of the digits and a budget of its own; all are planned with one microbatch size.
The result is compared with training on all digits at once.
"""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np

import edgetrain as et
from edgetrain.program import Program

HERE = Path(__file__).resolve().parent
MODEL = HERE.parent / "digits" / "model.onnx"
BUDGETS = ("256KiB", "120KiB", "110KiB")  # of the boards; the last is the smallest possible
LR, PLAN = 0.05, {"minibatch": 32, "microbatch": 8, "threads": 1}
KILLED, BACK = 1, 3  # after these rounds the last board is killed, and comes back


def compiled(budget: str) -> Program:
    """Compile a board's Program: the same mathematics in its own budget."""
    optimizer = et.SGD(lr=LR, momentum=0.9)
    return et.compile(MODEL, budget=budget, optimizer=optimizer, **PLAN)


def shares(count: int) -> Iterator[dict[str, np.ndarray]]:
    """Divide the training digits among the boards."""
    x, y = _digits("train")
    for k in range(count):
        yield {"x": x[k::count], "y": y[k::count]}


def _digits(split: str) -> tuple[np.ndarray, np.ndarray]:
    source = et.open_data("digits", split=split)
    x, y = np.empty((source.n, 1, 8, 8), np.float32), np.empty(source.n, np.int64)
    source.fill(np.arange(source.n), {"x": x, "y": y})
    return x, y


def central(rounds: int) -> float:
    """Accuracy of a single board that has all digits, after `rounds` epochs."""
    with et.Trainer(compiled(BUDGETS[0]), "digits", lr=LR) as trainer:
        trainer.fit(epochs=rounds)
        return trainer.evaluate()["accuracy"]


class Federation:
    """The processes of a federation.

    Args:
      folder: for all files they read and write.
    """

    def __init__(self, folder: Path) -> None:
        self.folder, self._boards, self._others = folder, {}, []
        self._link, self._ports = _free_port(), [_free_port() for _ in BUDGETS]
        home = folder / "flwr"
        home.mkdir(parents=True)
        own = ['[superlink]', 'default = "here"', '[superlink.here]',
               f'address = "127.0.0.1:{self._link}"', 'insecure = true', '']  # fmt: skip
        (home / "config.toml").write_text("\n".join(own))
        path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
        quiet = {"FLWR_TELEMETRY_ENABLED": "0", "FLWR_DISABLE_UPDATE_CHECK": "1"}
        quiet |= {"FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.2", "PYTHONWARNINGS": "ignore"}
        self._environment = {**os.environ, **quiet, "FLWR_HOME": str(home), "PATH": path}

    def start(self) -> None:
        """Start the server and all boards."""
        self._others.append(self._process(
            "superlink", "flower-superlink", "--insecure", "--host", "127.0.0.1",
            "--port", str(self._link), "--disable-runtime-dependency-installation",
        ))  # fmt: skip
        _wait(lambda: _answers(self._link), 40, "the SuperLink to answer")
        for number in range(len(BUDGETS)):
            self.join(number)

    def join(self, number: int) -> None:
        """Start a board."""
        program, data = (self.folder / f"board-{number}{ending}" for ending in (".edge", ".npz"))
        config = f'program="{program}" data="npz:{data}"'
        self._boards[number] = self._process(
            f"board-{number}", "flower-supernode", "--insecure",
            "--superlink", f"127.0.0.1:{self._link}", "--port", str(self._ports[number]),
            "--node-config", config,
        )  # fmt: skip

    def kill(self, number: int) -> None:
        """Kill a board, like a power cut."""
        _end([self._boards.pop(number)], signal.SIGKILL)

    def run(self, **config: Any) -> None:
        """Submit the app to the server, which starts it."""
        given = " ".join(f"{k}={json.dumps(v)}" for k, v in config.items())
        command = ["flwr", "run", str(HERE / "app"), "here", "--run-config", given]
        done = subprocess.run(command, env=self._environment, capture_output=True, text=True)
        if done.returncode:
            raise SystemExit(f"flwr run: {done.stdout}{done.stderr}")

    def close(self) -> None:
        """End all processes."""
        _end([*self._boards.values(), *self._others], signal.SIGTERM)

    def _process(self, name: str, *command: str) -> subprocess.Popen:
        with (self.folder / f"{name}.log").open("a") as log:
            return subprocess.Popen(
                command, env=self._environment, stdout=log, stderr=log, start_new_session=True
            )


@contextmanager
def federation(folder: Path) -> Iterator[Federation]:
    """Set up Programs, shares and processes in `folder`; end the processes afterwards."""
    if shutil.which("flower-superlink", path=str(Path(sys.executable).parent)) is None:
        raise SystemExit("Flower is needed for this: pip install 'edgetrain[flower]'")
    folder = folder.resolve()
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for number, share in enumerate(shares(len(BUDGETS))):
        compiled(BUDGETS[number]).save(folder / f"board-{number}.edge")
        np.savez(folder / f"board-{number}.npz", **share)
    x, y = _digits("test")
    np.savez(folder / "test.npz", x=x, y=y)
    found = Federation(folder)
    try:
        found.start()
        yield found
    finally:
        found.close()


def learned(folder: Path, rounds: int) -> list[dict[str, Any]]:
    """Run the federation; return its rounds, one dict each."""
    path = folder.resolve() / "rounds.jsonl"

    def done() -> list[dict[str, Any]]:
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def reached(number: int) -> Callable[[], bool]:
        return lambda: len(done()) > number

    with federation(folder) as boards:
        program, test = boards.folder / "board-0.edge", boards.folder / "test.npz"
        boards.run(
            program=str(program), test=f"npz:{test}", out=str(boards.folder), rounds=rounds, lr=LR
        )
        last = len(BUDGETS) - 1
        _wait(reached(KILLED), 120, f"round {KILLED}")
        boards.kill(last)
        _wait(reached(BACK), 120, f"round {BACK}")
        boards.join(last)
        _wait(reached(rounds), 240, "the last round")
        _wait((boards.folder / "trained.onnx").exists, 60, "the trained model")
    return done()


def _wait(is_done: Callable[[], bool], seconds: float, what: str) -> None:
    end = time.monotonic() + seconds
    while not is_done():
        if time.monotonic() > end:
            raise SystemExit(f"waited {seconds:.0f} s for {what}; see the logs.")
        time.sleep(0.2)


def _answers(port: int) -> bool:
    with socket.socket() as found:
        return found.connect_ex(("127.0.0.1", port)) == 0


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


def _end(processes: list[subprocess.Popen], how: int) -> None:
    """End processes and their children, by force if they take too long."""
    for process in processes:
        _signal(process, how)
    for process in processes:
        try:
            process.wait(5)
        except subprocess.TimeoutExpired:
            _signal(process, signal.SIGKILL)
            process.wait()


def _signal(process: subprocess.Popen, how: int) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, how)


def main(out: str = "runs/federated", rounds: str = "8") -> int:
    """Print each round's result and traffic, and the result of training on all digits."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the processes end too
    folder, count = Path(out), int(rounds)
    found = learned(folder, count)
    sent = 0
    for line in found:
        sent += 2 * line["boards"] * line["arrays_nbytes"]
        print(
            f"round {line['round']}: {line['boards']} boards, accuracy "
            f"{100 * line['accuracy']:.1f} %, {sent:,} bytes sent so far"
        )
    for plan in json.loads((folder / "plans.json").read_text()):
        print(f"a board plans {plan['arena-nbytes']:,} bytes, and sends {plan['arrays-nbytes']:,}")
    print(f"all digits on one board: {100 * central(count):.1f} %")
    print(f"trained model: {folder / 'trained.onnx'}")
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
