"""Reports: tables, pictures and pages made from results."""
