"""Pictures and pages of a plan or a run, as SVG, PNG or a single HTML file.

scene.py describes an arena over time; canvas.py has basic shapes and writes them; charts are
composed of these shapes; page.py makes a self-contained page of charts.
"""
