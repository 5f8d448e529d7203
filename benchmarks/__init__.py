"""What every number in the documentation was measured by: studies, tables and figures; records in results/, pages by render/."""
