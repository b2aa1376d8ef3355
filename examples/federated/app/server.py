"""The server: queries the boards' plans, averages their training, and writes the model."""

import json
import time
from collections.abc import Iterable
from pathlib import Path

from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg

from edgetrain.flower import evaluate, export_onnx, initial_arrays

GRACE = 5.0  # minimum seconds to wait for a board that does not answer
app = ServerApp()


class Hasty:
    """A grid that waits for late boards as long as the others took, and then goes on without them.

    Without it, a killed board would stall everyone's round: it is only missed after a minute.
    """

    def __init__(self, grid: Grid, least: int) -> None:
        self._grid, self._least = grid, least

    def __getattr__(self, name: str) -> object:
        return getattr(self._grid, name)

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> Iterable[Message]:
        """Return replies: at least `least` of them, unless `timeout` seconds have passed."""
        begun = time.monotonic()
        waiting = set(self._grid.push_messages(messages))
        replies: list[Message] = []
        end = begun + (timeout or 3600)
        while waiting and time.monotonic() < end:
            found = list(self._grid.pull_messages(waiting))
            replies += found
            waiting -= {message.metadata.reply_to_message_id for message in found}
            if found and len(replies) >= self._least:
                now = time.monotonic()
                end = min(end, now + max(GRACE, now - begun))
            time.sleep(0.2)
        return replies


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Start from the Program's weights; write a line to rounds.jsonl after every round."""
    config = context.run_config
    program, out, boards = config["program"], Path(config["out"]), config["boards"]
    rounds = out / "rounds.jsonl"
    while len(nodes := list(grid.get_node_ids())) < boards:
        time.sleep(0.5)
    asked = [Message(RecordDict(), node, "query") for node in nodes]
    plans = [reply.content for reply in grid.send_and_receive(asked) if reply.has_content()]
    facts = [{**plan["plan"], **plan["program"]} for plan in plans]
    (out / "plans.json").write_text(json.dumps(facts, indent=1))

    class Averaged(FedAvg):
        """FedAvg that remembers how many boards answered."""

        answered = 0

        def aggregate_train(self, server_round: int, replies: Iterable[Message]) -> tuple:
            """Like FedAvg, and count the answers."""
            replies = list(replies)
            self.answered = sum(reply.has_content() for reply in replies)
            return super().aggregate_train(server_round, replies)

    strategy = Averaged(fraction_evaluate=0.0, min_train_nodes=2, min_available_nodes=2)

    def scored(number: int, arrays: ArrayRecord) -> MetricRecord:
        found = evaluate(program, arrays, config["test"])
        nbytes = sum(array.numpy().nbytes for array in arrays.values())
        with rounds.open("a") as file:
            line = {"round": number, "boards": strategy.answered, "arrays_nbytes": nbytes, **found}
            file.write(json.dumps(line) + "\n")
        return MetricRecord({"loss": found["loss"], "accuracy": found["accuracy"]})

    result = strategy.start(
        grid=Hasty(grid, least=2),
        initial_arrays=initial_arrays(program),
        num_rounds=config["rounds"],
        timeout=120,
        train_config=ConfigRecord({"lr": config["lr"]}),
        evaluate_fn=scored,
    )
    export_onnx(program, result.arrays, out / "trained.onnx")
