"""Charts and pages of a plan or a run, as SVG, PNG or a single HTML file.

scene.py describes an arena over time; canvas.py defines basic shapes and writes them as SVG; charts
are composed of these shapes; page.py makes a self-contained page of charts.
"""
