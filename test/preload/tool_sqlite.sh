# sqlite3: bulk inserts, from statements and from a recursion, indexes, a constraint that fails.
# Told: what its queries and its check of integrity say, and the hash of the database.
set -e
{
    echo 'CREATE TABLE t(i INTEGER PRIMARY KEY, a TEXT, b REAL); BEGIN;'
    seq 60000 | sed "s/.*/INSERT INTO t VALUES(&, 'text & of many', &.25);/"
    echo 'COMMIT;'
} > inserts.sql
sqlite3 data.db < inserts.sql
sqlite3 data.db '
CREATE INDEX by_text ON t(a);
CREATE TABLE u(x, y);
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 400000)
    INSERT INTO u SELECT i * 2654435761 % 4294967296, hex(i) FROM n;
CREATE UNIQUE INDEX by_x ON u(x);
UPDATE t SET b = b * 2 WHERE i % 3 = 0;
DELETE FROM u WHERE x % 5 = 0;
INSERT INTO u VALUES(1, 1);
VACUUM;
PRAGMA integrity_check;
SELECT count(*), sum(x), max(y) FROM u;
SELECT count(*), sum(b), min(a) FROM t JOIN u ON t.i = u.x;
INSERT INTO u VALUES(1, 2);' || echo "status $?"
sha256sum data.db
