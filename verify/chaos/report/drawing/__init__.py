"""Draw the report as HTML and SVG. Start with `chart.py`; `lanes.py` and `axis.py` draw its parts."""
