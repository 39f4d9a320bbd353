from report.conftest import short_plotly as short_plotly
