"""A Program as a ClientApp of Flower's Message API, and the server's initial arrays."""

from typing import TYPE_CHECKING, Any

from ..runtime.loading.program import opened_program
from ..units.packages import explained
from ..units.public import public
from .arrays import Exchange, initial_state
from .client import Client

if TYPE_CHECKING:
    from flwr.app import ArrayRecord, Context, Message
    from flwr.clientapp import ClientApp


@public
def client_app(
    program: Any,
    data: Any,
    *,
    epochs: float = 1,
    steps: int | None = None,
    wire: str = "stored",
    **settings: Any,
) -> "ClientApp":
    """A board that trains a Program on its own data when the server asks it to.

    It replies to `train` and `evaluate` with an ArrayRecord and a MetricRecord, as Flower's FedAvg
    expects, and to `query` with a MetricRecord of planned bytes and a ConfigRecord of texts; see
    `Client.train`, `evaluate` and `facts`.

    Args:
      program: the path of a .edge file, a Program, or a function of the node's config
        (`flower-supernode --node-config`) that returns either.
      data: data as for `Trainer`, or a function of the node's config that returns it.
      epochs, steps: epochs or minibatches per round; the server's config, which may contain lr,
        epochs and steps, takes precedence.
      wire: `stored` sends arrays as stored in the arena, `fp32` as fp32.
      settings: of `Trainer`: threads, validation, keep_last, metrics, lr.
    Raises:
      UsageError: Flower is not installed, or a setting is unknown.
    """
    board = Client(program, data, epochs, steps, wire, settings)
    try:
        from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
        from flwr.clientapp import ClientApp
    except ModuleNotFoundError as error:
        raise explained(error) from error
    app = ClientApp()

    @app.train()
    def train(message: "Message", context: "Context") -> "Message":
        name, arrays = _arrays(message)
        sent, metrics = board.train(arrays, _config(message), context.node_config)
        record = ArrayRecord({key: _array(value) for key, value in sent.items()})
        content = RecordDict({name: record, "metrics": MetricRecord(metrics)})
        return Message(content=content, reply_to=message)

    @app.evaluate()
    def evaluate(message: "Message", context: "Context") -> "Message":
        metrics = board.evaluate(_arrays(message)[1], _config(message), context.node_config)
        return Message(content=RecordDict({"metrics": MetricRecord(metrics)}), reply_to=message)

    @app.query()
    def query(message: "Message", context: "Context") -> "Message":
        numbers, texts = board.facts(context.node_config)
        content = RecordDict({"plan": MetricRecord(numbers), "program": ConfigRecord(texts)})
        return Message(content=content, reply_to=message)

    return app


@public
def initial_arrays(program: Any, wire: str = "stored") -> "ArrayRecord":
    """The server's initial arrays: the weights that the Program was compiled with.

    Args:
      program: a Program, or the path of a .edge file.
      wire: must match the boards' `client_app`.
    """
    program = opened_program(program)
    result = Exchange(program, initial_state(program), wire).read()
    try:
        from flwr.app import ArrayRecord
    except ModuleNotFoundError as error:
        raise explained(error) from error
    return ArrayRecord({name: _array(value) for name, value in result.items()})


def _array(value: Any) -> Any:
    from flwr.app import Array

    return Array(value)


def _arrays(message: "Message") -> tuple[str, dict[str, Any]]:
    """(name, arrays by name) of a message's only ArrayRecord."""
    from ..errors import DataError

    records = message.content.array_records
    if len(records) != 1:
        raise DataError(
            f"message {message.metadata.message_type}: {len(records)} ArrayRecords; expected one, "
            "such as initial_arrays(program)."
        )
    name, record = next(iter(records.items()))
    result = {}
    for key, array in record.items():
        try:
            result[key] = array.numpy()
        except (ValueError, TypeError, OSError, EOFError) as error:
            raise DataError(
                f"array {key!r}: {str(error).rstrip('.')[:120]}; expected a numpy array. "
                "Send flwr.app.Array(numpy_array)."
            ) from error
    return name, result


def _config(message: "Message") -> dict[str, Any]:
    """All ConfigRecords of a message, merged."""
    return {k: v for record in message.content.config_records.values() for k, v in record.items()}
