-- A session's rows of one table, projected or derived. Columns are listed, so that a column added by a migration disturbs no prepared statement.
select {columns} from {slot}.{table} where session_no = %(session_no)s
