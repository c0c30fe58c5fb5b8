-- Fills a table inside one transaction, then closes the database by opening another.
-- last_insert_rowid() changes nothing, and libsqlite3 exports the function behind it: a place where a
-- debugger can stop, even without debug information.
PRAGMA cache_size = -65536;  -- up to 64 MiB of pages in memory
CREATE TABLE words (id INTEGER PRIMARY KEY, word TEXT NOT NULL, count INTEGER NOT NULL);
CREATE INDEX words_by_text ON words (word);
SELECT 'before', last_insert_rowid();

BEGIN;
INSERT INTO words (word, count)
  WITH RECURSIVE numbers (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < 20000)
  SELECT printf('word number %d of many', n), n % 97 FROM numbers;
SELECT 'during', last_insert_rowid();
COMMIT;
SELECT 'after', last_insert_rowid();

.open :memory:
SELECT 'closed', last_insert_rowid();
