"""The tables of a store, and every statement that it makes of them.

mailbox ─► folder ─► msg; a mailbox's fence counts its claims
  └────► wish, left there by other processes
sink: at most one row, of whoever was told of what the others say
"""

from __future__ import annotations

from collections.abc import Mapping

from directsuite.durable.database import Statement, Tables, sql
from directsuite.sync.model import Wish

TABLES = Tables(
    "store",
    (
        sql("""
            CREATE TABLE directsuite.mailbox (
                id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, name text NOT NULL UNIQUE, fence bigint NOT NULL
            )
        """),
        sql("""
            CREATE TABLE directsuite.folder (
                id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
                mailbox bigint NOT NULL REFERENCES directsuite.mailbox, name text NOT NULL,
                generation bigint NOT NULL, fingerprint bytea, audited_ms bigint, UNIQUE (mailbox, name)
            )
        """),
        sql("""
            CREATE TABLE directsuite.msg (
                folder bigint NOT NULL REFERENCES directsuite.folder, generation bigint NOT NULL, uid bigint NOT NULL,
                state bigint NOT NULL, identity bytea, digest bytea, size bigint NOT NULL, received_ms bigint,
                attempts bigint NOT NULL, retry_ms bigint, PRIMARY KEY (folder, generation, uid)
            ) /*+ WITHOUT ROWID */
        """),
        sql("CREATE INDEX msg_digest ON directsuite.msg (folder, digest) WHERE digest IS NOT NULL"),
        sql("CREATE INDEX msg_unsettled ON directsuite.msg (folder, state) WHERE state IN (2, 4, 5, 7)"),
        sql("""
            CREATE TABLE directsuite.wish (
                mailbox bigint NOT NULL REFERENCES directsuite.mailbox, kind text NOT NULL, PRIMARY KEY (mailbox, kind)
            ) /*+ WITHOUT ROWID */
        """),
        sql("CREATE TABLE directsuite.sink (kind text NOT NULL)"),
        sql("CREATE UNIQUE INDEX sink_is_one ON directsuite.sink ((true))"),  # for workers that begin at once
    ),
)

BIND = sql("INSERT INTO directsuite.sink (kind) VALUES (:kind) ON CONFLICT DO NOTHING")
BOUND = sql("SELECT kind FROM directsuite.sink")

CLAIM = sql("""
    INSERT INTO directsuite.mailbox AS m (name, fence) VALUES (:name, 1)
    ON CONFLICT (name) DO UPDATE SET fence = m.fence + 1 RETURNING id, name, fence
""")
FENCE = sql("SELECT fence FROM directsuite.mailbox WHERE id = :mailbox FOR UPDATE")

MAKE_FOLDER = sql("""
    INSERT INTO directsuite.folder (mailbox, name, generation) VALUES (:mailbox, :name, 1)
    ON CONFLICT (mailbox, name) DO NOTHING
""")
FOLDER = sql("""
    SELECT id, name, generation, fingerprint, audited_ms FROM directsuite.folder
    WHERE mailbox = :mailbox AND name = :name
""")
FOLDERS = sql("SELECT id, name, generation, fingerprint, audited_ms FROM directsuite.folder WHERE mailbox = :mailbox")

STATES = sql("SELECT uid, state FROM directsuite.msg WHERE folder = :folder AND generation = :generation")
ROWS = sql("SELECT * FROM directsuite.msg WHERE folder = :folder AND generation = :generation ORDER BY uid")
ROWS_OF = sql("""
    SELECT * FROM directsuite.msg WHERE folder = :folder AND generation = :generation AND uid = ANY(:uids) ORDER BY uid
""")
_CANDIDATES = """
    SELECT * FROM directsuite.msg WHERE folder = :folder AND generation = :generation AND state = 1
    AND identity IS NOT NULL AND received_ms IS NOT NULL ORDER BY uid
"""
SENTINELS = sql(f"""
    SELECT * FROM ({_CANDIDATES} DESC LIMIT 1) AS newest UNION SELECT * FROM ({_CANDIDATES} LIMIT 1) AS oldest
    ORDER BY uid DESC
""")  # noqa: S608  of constants
# Either database, left alone, reads whole folders: SQLite prefers the primary key, and PostgreSQL's statistics are
# behind during a first synchronisation.
WITH_DIGEST = sql(
    """
    SELECT f.name, m.* FROM directsuite.folder f CROSS JOIN LATERAL (
        SELECT * FROM directsuite.msg WHERE folder = f.id AND digest = :digest OFFSET 0
    ) m WHERE f.mailbox = :mailbox
    """,
    sqlite="""
    SELECT f.name, m.* FROM folder f JOIN msg m INDEXED BY msg_digest ON m.folder = f.id
    WHERE f.mailbox = :mailbox AND m.digest = :digest
    """,
)
IN_STATE = sql("""
    SELECT f.name, m.* FROM directsuite.folder f JOIN directsuite.msg m ON m.folder = f.id
    WHERE f.mailbox = :mailbox AND f.name <> ALL(:but) AND m.state = :state ORDER BY m.folder, m.generation, m.uid
""")
UNSETTLED = sql("""
    SELECT f.name, m.* FROM directsuite.folder f
    JOIN directsuite.msg m /*+ INDEXED BY msg_unsettled */ ON m.folder = f.id
    WHERE f.mailbox = :mailbox AND f.name <> ALL(:but) AND m.state = :state AND m.state IN (2, 4, 5, 7)
    ORDER BY m.folder, m.generation, m.uid
""")

ORPHAN = sql("""
    UPDATE directsuite.msg SET state = CASE state WHEN 5 THEN 3 ELSE 4 END, attempts = 0, retry_ms = NULL
    WHERE folder = ANY(:folders) AND state IN (1, 2, 5, 6, 7)
""")
WRITE = sql("""
    INSERT INTO directsuite.msg VALUES :rows ON CONFLICT (folder, generation, uid) DO UPDATE SET
        state = excluded.state, identity = excluded.identity, digest = excluded.digest, size = excluded.size,
        received_ms = excluded.received_ms, attempts = excluded.attempts, retry_ms = excluded.retry_ms
""")
WRITE_FOLDER = sql("""
    UPDATE directsuite.folder SET name = :name, generation = :generation, fingerprint = :fingerprint,
        audited_ms = :audited_ms
    WHERE id = :id AND mailbox = :mailbox
""")

WISH = sql("""
    INSERT INTO directsuite.wish (mailbox, kind) SELECT id, :kind FROM directsuite.mailbox WHERE name = ANY(:names)
    ON CONFLICT (mailbox, kind) DO NOTHING
""")
NAMES = sql("SELECT name FROM directsuite.mailbox")
WISHED = sql("SELECT DISTINCT b.name FROM directsuite.wish w JOIN directsuite.mailbox b ON b.id = w.mailbox")
IS_WISHED = sql("""
    SELECT b.name FROM directsuite.wish w JOIN directsuite.mailbox b ON b.id = w.mailbox WHERE b.name = :name
""")
GRANT = sql("""
    DELETE FROM directsuite.wish WHERE mailbox = (SELECT id FROM directsuite.mailbox WHERE name = :name)
    RETURNING mailbox, kind
""")
GRANTS: Mapping[str, Statement] = {
    Wish.AUDIT: sql("UPDATE directsuite.folder SET audited_ms = 0 WHERE mailbox = :mailbox AND audited_ms IS NOT NULL"),
    Wish.RETRY: sql("""
        UPDATE directsuite.msg SET retry_ms = 0 WHERE retry_ms > 0 AND state IN (2, 4, 5, 7)
        AND folder IN (SELECT id FROM directsuite.folder WHERE mailbox = :mailbox)
    """),
}

STATUS = sql("""
    SELECT b.name, f.name, f.generation, f.audited_ms, m.state, count(m.uid) FROM directsuite.mailbox b
    LEFT JOIN directsuite.folder f ON f.mailbox = b.id LEFT JOIN directsuite.msg m ON m.folder = f.id
    GROUP BY b.id, f.id, m.state ORDER BY b.name COLLATE "C", f.name COLLATE "C", m.state
""")
