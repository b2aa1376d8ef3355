"""A Program as a NumPyClient, which exchanges lists of arrays without names."""

from typing import TYPE_CHECKING, Any

from ..errors import DataError, UsageError
from ..units.packages import explained
from ..units.public import public
from .arrays import Exchange, initial_state
from .client import Client

if TYPE_CHECKING:
    from flwr.client import NumPyClient


@public
def numpy_client(
    program: Any,
    data: Any,
    *,
    node: Any = None,
    epochs: float = 1,
    steps: int | None = None,
    wire: str = "stored",
    **settings: Any,
) -> "NumPyClient":
    """A board for servers that exchange lists: arrays in the order of `Exchange.names`.

    Lists have no names, so only shapes reveal a board that trains something else. Therefore
    `get_properties` and the metrics of `fit` report the digest of the sparse weights' patterns, and
    if the server's config contains "pattern", it must match the board's.

    Args:
      node: the node's config (`context.node_config`), if `program` or `data` is a function of it.
      program, data, epochs, steps, wire, settings: as in `client_app`.
    Raises:
      UsageError: Flower is not installed, or a setting is unknown.
    """
    try:
        from flwr.client import NumPyClient
    except ModuleNotFoundError as error:
        raise explained(error) from error
    board, own = Client(program, data, epochs, steps, wire, settings), dict(node or {})

    class Board(NumPyClient):
        """A board."""

        def get_properties(self, config: dict) -> dict:
            """The board's planned bytes, and what it would train."""
            numbers, texts = board.facts(own)
            return {**numbers, **texts}

        def get_parameters(self, config: dict) -> list:
            """The weights that the Program was compiled with."""
            opened = board.opened(own)
            return [*Exchange(opened, initial_state(opened), wire).read().values()]

        def fit(self, parameters: list, config: dict) -> tuple[list, int, dict]:
            """Train for one round."""
            arrays, config, pattern = _named(board, own, parameters, config)
            sent, metrics = board.train(arrays, config, own)
            examples = int(metrics.pop("num-examples"))
            return [*sent.values()], examples, {**metrics, "pattern": pattern}

        def evaluate(self, parameters: list, config: dict) -> tuple[float, int, dict]:
            """Evaluate the server's arrays on the board's held-out data."""
            arrays, config, _ = _named(board, own, parameters, config)
            metrics = board.evaluate(arrays, config, own)
            examples = int(metrics.pop("num-examples"))
            return float(metrics.pop("loss")), examples, metrics

    return Board()


def _named(
    board: Client, node: dict, parameters: list, config: dict
) -> tuple[dict[str, Any], dict[str, Any], str]:
    """(arrays by name, config without its pattern, the board's own pattern)."""
    opened = board.opened(node)
    exchange = Exchange(opened, initial_state(opened), board.wire)
    if not isinstance(parameters, list | tuple):
        raise DataError(
            f"arrays {repr(parameters)[:80]}: expected a list of {len(exchange.names)} arrays, as "
            "returned by get_parameters."
        )
    config = config or {}
    if len(parameters) != len(exchange.names):
        raise DataError(
            f"arrays: found {len(parameters)}; expected {len(exchange.names)}, as returned by "
            "get_parameters. Train the same parameters on every board."
        )
    rest = {key: value for key, value in config.items() if key != "pattern"}
    if config.get("pattern", exchange.pattern) != exchange.pattern:
        raise UsageError(
            f"config pattern {str(config['pattern'])[:40]!r}; this board has "
            f"{exchange.pattern!r}. Compile all boards' Programs from one model with the same "
            "density and seed, and rewiring='none'."
        )
    return dict(zip(exchange.names, parameters, strict=True)), rest, exchange.pattern
