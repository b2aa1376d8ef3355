"""A board: trains its own Program on its own data when the server asks.

`flower-supernode --node-config 'program="board.edge" data="npz:own.npz"'` gives it both.
"""

from edgetrain.flower import client_app

app = client_app(lambda node: node["program"], lambda node: node["data"])
