"""`gwi play`: a page of this machine to play with, points in one dimension or a table of one's own.

`app` answers the page, `one_dimension` fits points, `table_process` holds a table in a process of its own.
"""
