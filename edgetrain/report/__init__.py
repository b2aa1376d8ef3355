"""Pictures and pages of a plan or a run: drawn once, written as SVG, PNG or into one HTML file.

scene.py says what an arena holds over time; canvas.py has the few shapes that pictures are made of
and writes them; the charts put those shapes together; page.py makes a page of charts that needs no
other file.
"""
