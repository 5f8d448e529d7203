"""The HTML pages: a report on one model, a comparison of several."""
