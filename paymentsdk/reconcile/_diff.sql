-- The comparison of a book with the orders of a walk. `_diff.py` runs it part by part; a part begins at `-- @name`.
-- Variables: "begin", "end", settled, oldest (moments), walked, changed_rows (files), steps, step (whole numbers),
-- is_looked_up (whether the look-ups have been made).

-- @setup

-- NULL if neither the paid amount nor the state is known.
CREATE MACRO is_paid(paid, state) AS
    coalesce(paid <> 0 OR state IN ('paid', 'refunded'), nullif(paid IS NULL AND state IS NULL, true));

-- An open order is only known to be unpaid. Platforms call a partly refunded order paid or refunded. An order that was
-- canceled after its payment is refunded.
CREATE MACRO same_state(ours, theirs, paid, refunded) AS
    ours IS NULL OR theirs IS NULL OR ours = theirs
    OR (ours = 'open' AND theirs = 'created')
    OR (theirs = 'open' AND ours IN ('created', 'expired', 'canceled'))
    OR (ours = 'canceled' AND theirs = 'refunded')
    OR (ours IN ('paid', 'refunded') AND theirs IN ('paid', 'refunded') AND 0 < refunded AND refunded < paid);

-- The names of the amounts that the book has, but that cannot be read on the platform.
CREATE MACRO not_compared(our_total, our_paid, our_refunded, total, paid, refunded) AS concat_ws(
    ', ', if(our_total IS NOT NULL AND total IS NULL, 'total', NULL), if(our_paid IS NOT NULL AND paid IS NULL, 'paid', NULL),
    if(our_refunded IS NOT NULL AND refunded IS NULL, 'refunded', NULL)
);

CREATE MACRO judged(ours, theirs) AS CASE
    WHEN ours.currency <> theirs.currency THEN 'currency'
    WHEN ours.paid <> theirs.paid THEN 'paid_amount'
    WHEN ours.refunded <> theirs.refunded THEN 'refunded_amount'
    WHEN ours.total <> theirs.total THEN 'total_amount'
    WHEN NOT same_state(ours.state, theirs.state, theirs.paid, theirs.refunded) THEN 'status'
    WHEN not_compared(ours.total, ours.paid, ours.refunded, theirs.total, theirs.paid, theirs.refunded) <> ''
        THEN 'not_compared'
    ELSE 'match'
END;

-- NULL if the sum does not fit into a column.
CREATE MACRO added(whole, rest) AS TRY_CAST(whole + floor(rest)::BIGINT AS DECIMAL(38, 18)) + (rest - floor(rest));
CREATE MACRO sum_of(amount) AS added(sum(floor(amount)::HUGEINT), sum(amount - floor(amount)));
CREATE MACRO total_of(amount) AS sum(amount);

-- The platform's amount minus the book's; NULL if one is unknown, or if the amounts have two currencies.
CREATE MACRO difference(outcome, n, ids, ours, theirs) AS CASE
    WHEN outcome IN ('currency', 'not_read', 'not_whole', 'too_old') THEN NULL
    WHEN n IS NULL THEN theirs
    WHEN ids IS NULL OR outcome IN ('missing', 'not_paid_or_missing', 'twice_in_book') THEN -ours
    ELSE added(floor(theirs)::HUGEINT - floor(ours)::HUGEINT, theirs - floor(theirs) - (ours - floor(ours)))
END;

CREATE MACRO in_question(created) AS
    created IS NULL OR (created >= getvariable('begin') AND created < getvariable('end'));
CREATE MACRO in_reach(created) AS in_question(created) OR created >= getvariable('oldest');

-- A row without a date comes once for each window that showed it. A row that has changed since is among the changes.
CREATE VIEW changed AS
    SELECT * FROM changed_rows WHERE in_question(created) OR created < '0001-01-03 00:00:00+00'
    QUALIFY row_number() OVER (PARTITION BY account, id ORDER BY read_at DESC, updated DESC) = 1;
CREATE VIEW seen AS
    SELECT * FROM walked ANTI JOIN changed_rows USING (account, id)
        WHERE created >= '0001-01-03 00:00:00+00'
    UNION ALL
    SELECT * FROM walked ANTI JOIN changed_rows USING (account, id)
        WHERE created IS NULL OR created < '0001-01-03 00:00:00+00'
        QUALIFY row_number() OVER (PARTITION BY account, id ORDER BY read_at DESC, updated DESC) = 1
    UNION ALL
    SELECT * FROM changed;
CREATE VIEW theirs AS
    SELECT
        account, id, nullif(reference, '') AS reference, currency, total,
        if(contains(unread, 'paid'), NULL, coalesce(paid, 0)) AS paid,
        if(contains(unread, 'refunded'), NULL, coalesce(refunded, 0)) AS refunded, order_status, status, created, read_at
    FROM seen WHERE account IN getvariable('accounts');
-- The state is computed on demand, because few of the orders need it.
CREATE MACRO state_in(order_status, status) AS coalesce(state_of(order_status), state_of(status));

-- The results of look-ups: the orders of a reference, or the order of an id. Without an `id`, no order was found.
CREATE TABLE looked_up (
    n BIGINT, account VARCHAR, reference VARCHAR, by_id BOOLEAN, is_doubtful BOOLEAN, id VARCHAR, currency VARCHAR,
    total DECIMAL(38, 18), paid DECIMAL(38, 18), refunded DECIMAL(38, 18), state VARCHAR, created TIMESTAMPTZ,
    reason VARCHAR, read_at TIMESTAMPTZ
);
CREATE TABLE open_writes (account VARCHAR, reference VARCHAR, order_id VARCHAR);
CREATE TABLE doubtful (account VARCHAR, first TIMESTAMPTZ, last TIMESTAMPTZ);

-- Sellers that could not be read, and the reasons of single orders.
CREATE TABLE failed (account VARCHAR, reason VARCHAR);
CREATE TABLE reasons (n BIGINT, reason VARCHAR);

CREATE TABLE found (
    outcome VARCHAR, n BIGINT, account VARCHAR, reference VARCHAR, ids VARCHAR, currency VARCHAR,
    total DECIMAL(38, 18), paid DECIMAL(38, 18), refunded DECIMAL(38, 18), state VARCHAR, created TIMESTAMPTZ,
    read_at TIMESTAMPTZ
);

-- @candidates
-- Orders that agree are recognised by hashes, and are not compared further: the sum over a reference is 0 if both sides
-- have the same number of orders with the same compared columns. All other orders are candidates; some of them may
-- agree as well. Orders of the book that were created outside of the period are candidates, too: only a look-up finds
-- their counterparts, and shows whether an order that is open here was paid at another time.
CREATE TABLE candidates AS
    SELECT h FROM (
        SELECT
            hash(account, reference) AS h, fingerprint(currency, total, paid, refunded, state_of(status)) AS f,
            in_question(created) AS is_here
        FROM book
        UNION ALL
        SELECT
            hash(account, reference),
            -fingerprint(currency, total, paid, refunded, state_in(order_status, status)),
            true
        FROM theirs
    ) GROUP BY h HAVING bool_or(is_here) AND (sum(f) <> 0 OR NOT bool_and(is_here));
CREATE TABLE our_candidates AS
    SELECT *, state_of(status) AS state, hash(account, reference) AS h FROM book WHERE h IN (FROM candidates);
CREATE TABLE their_candidates AS
    SELECT * EXCLUDE (order_status, status), state_in(order_status, status) AS state, hash(account, reference) AS h
    FROM theirs WHERE h IN (FROM candidates);

-- References that either side has more than once, and a few others with the same hash. Orders without a reference are
-- left out, because no book has them.
CREATE TABLE repeated AS
    SELECT h FROM our_candidates GROUP BY h HAVING count(*) > 1
    UNION
    SELECT h FROM their_candidates WHERE reference IS NOT NULL GROUP BY h HAVING count(*) > 1;

-- All others are compared in one join. Matches are not stored: they are counted as the rest of the book.
INSERT INTO found
    SELECT
        CASE
            WHEN b.n IS NULL THEN if(t.created >= getvariable('settled'), 'too_recent', 'extra')
            WHEN t.id IS NULL OR NOT in_question(b.created) THEN 'absent'
            WHEN is_paid(b.paid, b.state) AND NOT is_paid(t.paid, t.state) THEN 'absent'
            ELSE judged(b, t)
        END AS outcome,
        b.n, coalesce(t.account, b.account), coalesce(t.reference, b.reference), t.id, t.currency, t.total, t.paid,
        t.refunded, t.state, t.created, t.read_at
    FROM (FROM our_candidates ANTI JOIN repeated USING (h)) AS b
        FULL JOIN (FROM their_candidates ANTI JOIN repeated USING (h)) AS t
        ON b.account = t.account AND b.reference = t.reference
    WHERE outcome <> 'match' AND (b.n IS NULL OR in_question(b.created) OR is_paid(t.paid, t.state));

CREATE TABLE ours_left AS FROM our_candidates WHERE h IN (FROM repeated);
CREATE TABLE theirs_left AS FROM their_candidates WHERE h IN (FROM repeated);
DROP TABLE their_candidates;

-- @orders
-- Both sides of one of the `steps`, by hash. `pairs` will assign an order of the book to each order of the platform. An
-- order of the book that is too old for the search is left out if the book has newer orders of its reference. It stays
-- if the first payment is closer to it than to the newer orders: the platform may date its payment a little later.
CREATE TABLE orders AS
    WITH
        both_sides AS (
            SELECT
                *, row_number() OVER () AS number, coalesce(is_paid(paid, state), true) AS got_paid,
                epoch_us(if(created >= '0001-01-03 00:00:00+00', created, getvariable('begin'))) AS moment
            FROM (
                SELECT * EXCLUDE (order_id, status) FROM ours_left
                UNION ALL BY NAME
                FROM theirs_left
            ) WHERE h % getvariable('steps') = getvariable('step')
        ),
        alike AS (
            SELECT
                account, reference, min(number) AS series, min(moment) FILTER (n IS NULL AND got_paid) AS first_paid,
                min(moment) FILTER (n IS NOT NULL AND in_reach(created)) AS first_in_reach
            FROM both_sides GROUP BY ALL
        )
    SELECT o.*, series
    FROM both_sides AS o JOIN alike ON o.account = alike.account AND o.reference IS NOT DISTINCT FROM alike.reference
    WHERE n IS NULL OR in_reach(created) OR first_in_reach IS NULL OR first_paid - moment < first_in_reach - first_paid;

-- The columns that decide which orders belong together; all orders of a reference are a `series`. They have their own
-- table, because sorting and partitioning wide rows with strings repeatedly would take most of the time.
CREATE TABLE points AS
    SELECT
        number, series, n, moment, paid, got_paid, fingerprint(currency, total, paid, refunded, state) AS f,
        fingerprint(currency, total, paid, refunded, NULL) AS amounts,
        row_number() OVER (
            PARTITION BY series, moment, n IS NULL
            ORDER BY got_paid DESC, paid DESC NULLS LAST, refunded DESC NULLS LAST, currency, total, state, n, id
        ) AS rank
    FROM orders;
CREATE TABLE pairs (number BIGINT, n BIGINT);

-- @pair
-- Pair as many orders with the same `:key` as possible, with the least time between them. Walk along time, up a level
-- at each order of the book and down at each order of the platform. On every level, both sides alternate, and
-- neighbours are pairs. If a level has an odd number of orders, leave out the order without which the rest is closest
-- (Karp and Li, "Two special cases of the assignment problem", 1975).
INSERT INTO pairs
    WITH
        free AS (
            FROM points ANTI JOIN pairs USING (number)
            WINDOW alike AS (PARTITION BY series, :key)
            QUALIFY 0 < count(n) OVER alike AND count(n) OVER alike < count(*) OVER alike
        ),
        levels AS (
            SELECT *, sum(if(n IS NULL, -1, 1)) OVER (PARTITION BY series, :key ORDER BY moment, rank, n IS NULL)
                + if(n IS NULL, 1, 0) AS level
            FROM free
        ),
        places AS (
            SELECT *, row_number() OVER line AS place, moment - lag(moment) OVER line AS gap
            FROM levels
            WINDOW line AS (PARTITION BY series, :key, level ORDER BY moment, rank, n IS NULL)
        ),
        costs AS (
            SELECT *, coalesce(sum(if(place % 2 = 0, gap, -gap)) OVER (
                PARTITION BY series, :key, level ORDER BY place
            ), 0) AS cost
            FROM places
        ),
        lines AS (
            SELECT *,
                if(count(*) OVER line % 2 = 1, first_value(place) OVER (line ORDER BY place % 2 DESC, cost, place DESC), NULL)
                    AS left_out
            FROM costs
            WINDOW line AS (PARTITION BY series, :key, level)
        )
    SELECT number, max(n) OVER (PARTITION BY series, :key, level, (place + if(place > left_out, 0, 1)) // 2)
    FROM lines WHERE place IS DISTINCT FROM left_out;

-- @double
-- An additional payment is also paired with the order of the same `:key` that is closest in time.
INSERT INTO pairs
    WITH besides AS (FROM points ANTI JOIN pairs USING (number) WHERE n IS NULL AND got_paid)
    SELECT number, if(after IS NULL OR moment - before.moment <= after.moment - moment, before.n, after.n) FROM (
        SELECT *,
            last_value(ours IGNORE NULLS) OVER (line ROWS UNBOUNDED PRECEDING) AS before,
            first_value(ours IGNORE NULLS) OVER (line ROWS BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING) AS after
        FROM (
            SELECT *, NULL AS ours FROM besides
            UNION ALL
            SELECT *, {'n': n, 'moment': moment} FROM points SEMI JOIN besides USING (series) WHERE n IS NOT NULL
        )
        WINDOW line AS (PARTITION BY series, :key ORDER BY moment, rank, n IS NULL)
    ) WHERE n IS NULL AND (before IS NOT NULL OR after IS NOT NULL);

-- @judge
-- Matches are not stored: they are counted as the rest of the book. An unpaid order is not extra if the book has its
-- reference.
INSERT INTO found
    WITH
        matched AS (SELECT o.* REPLACE (pairs.n AS n) FROM orders AS o JOIN pairs USING (number) WHERE o.n IS NULL),
        several AS (SELECT n FROM matched GROUP BY n HAVING count(*) > 1),
        shown AS (
            SELECT
                n, id AS ids, currency, total, paid, refunded, state, created, read_at, got_paid::INT AS times_paid,
                got_paid AND in_question(created) AS is_here
            FROM matched ANTI JOIN several USING (n)
            UNION ALL
            SELECT
                n, string_agg(id, ' ' ORDER BY paid DESC, id), first(currency ORDER BY paid DESC, id), sum_of(total),
                sum_of(paid), sum_of(refunded), first(state ORDER BY paid DESC, id), min(created), max(read_at), count_if(got_paid),
                bool_or(got_paid AND in_question(created))
            FROM matched SEMI JOIN several USING (n) GROUP BY n
        )
    SELECT
        CASE
            WHEN t.n IS NULL THEN 'absent'
            WHEN NOT (getvariable('is_looked_up') OR in_question(b.created)) THEN 'absent'
            WHEN times_paid = 0 AND is_paid(b.paid, b.state) THEN 'absent'
            WHEN times_paid > 1 THEN 'double'
            ELSE judged(b, t)
        END AS outcome,
        b.n, b.account, b.reference, ids, t.currency, t.total, t.paid, t.refunded, t.state, t.created, read_at
    FROM ours_left AS b SEMI JOIN orders USING (n) LEFT JOIN shown AS t USING (n)
    WHERE outcome <> 'match' AND (in_question(b.created) OR is_here);
INSERT INTO found
    SELECT
        if(created >= getvariable('settled'), 'too_recent', 'extra'), n, account, reference, id, currency, total, paid,
        refunded, state, created, read_at
    FROM orders ANTI JOIN pairs USING (number) ANTI JOIN our_candidates USING (account, reference);
DROP TABLE orders;
DROP TABLE points;
DROP TABLE pairs;

-- @look_up
-- Orders that the walk has not found, or that were created outside of the period. All orders of their references are
-- compared again.
CREATE TABLE absent AS
    SELECT
        b.* REPLACE (if(in_question(b.created), b.order_id, NULL) AS order_id)
    FROM our_candidates AS b JOIN found USING (n) WHERE found.outcome = 'absent';
DELETE FROM found WHERE (account, reference) IN (SELECT (account, reference) FROM absent);
DROP TABLE ours_left;
DROP TABLE theirs_left;

-- @absent
SELECT n, account, reference, coalesce(order_id, '') FROM absent
ORDER BY row_number() OVER (PARTITION BY account ORDER BY n), account;

-- @looked_up
-- Orders that a look-up by reference has shown are added to those of the walk, unless the walk has them already.
UPDATE looked_up SET state = state_of(state);
CREATE TABLE theirs_left AS
    SELECT * EXCLUDE (order_status, status), state_in(order_status, status) AS state, hash(account, reference) AS h
    FROM theirs SEMI JOIN absent USING (account, reference);
INSERT INTO theirs_left BY NAME
    WITH walked_too AS (SELECT DISTINCT account, id FROM theirs SEMI JOIN looked_up USING (account, id))
    SELECT DISTINCT ON (account, id)
        account, id, reference, currency, total, paid, refunded, state, created, read_at,
        hash(account, reference) AS h
    FROM looked_up ANTI JOIN walked_too USING (account, id)
    WHERE id IS NOT NULL AND NOT by_id
    ORDER BY read_at DESC;
CREATE TABLE ours_left AS FROM our_candidates SEMI JOIN absent USING (account, reference);

-- @decide
-- After `judge`, an order is still absent if it was not found at all, or only as unpaid orders. The order of its id, if
-- it was looked up, replaces these.
CREATE TABLE nowhere AS
    WITH unpaid AS (SELECT * EXCLUDE outcome, ids AS id, false AS by_id FROM found WHERE outcome = 'absent')
    FROM unpaid ANTI JOIN (FROM looked_up WHERE by_id) USING (n)
    UNION ALL BY NAME
    FROM looked_up SEMI JOIN unpaid USING (n) WHERE by_id;
DELETE FROM found WHERE outcome = 'absent';

-- Lines that the book has twice, by reference or id: another line with the same amounts has the order. Lines with one
-- reference but different ids or dates are different orders.
CREATE TABLE twins AS
    WITH
        lines AS (
            SELECT
                b.n, b.account, b.reference, b.order_id, b.created, row(b.currency, b.total, b.paid, b.refunded) AS amounts,
                t.n IS NULL AS is_found, coalesce(t.by_id AND t.id IS NOT NULL, false) AS is_found_by_id
            FROM book AS b LEFT JOIN nowhere AS t USING (n)
            WHERE in_question(b.created) AND (
                (b.account, b.reference) IN (SELECT (account, reference) FROM absent)
                OR (b.account, b.order_id) IN (SELECT (account, order_id) FROM absent WHERE order_id IS NOT NULL)
            )
        ),
        pairs AS (
            SELECT b.n, s.n AS twin FROM lines AS b JOIN lines AS s USING (account, reference)
            WHERE NOT b.is_found AND NOT b.is_found_by_id AND (s.is_found OR s.is_found_by_id)
                AND b.amounts IS NOT DISTINCT FROM s.amounts
                AND coalesce(b.order_id = s.order_id, b.created = s.created, true)
            UNION ALL
            SELECT b.n, s.n FROM lines AS b JOIN lines AS s USING (account, order_id)
            WHERE NOT b.is_found AND (s.is_found OR (s.is_found_by_id AND (NOT b.is_found_by_id OR s.n < b.n)))
                AND b.amounts IS NOT DISTINCT FROM s.amounts
        )
    SELECT n, min(twin) AS twin FROM pairs GROUP BY n;

INSERT INTO found
    SELECT
        CASE
            WHEN t.by_id AND t.id IS NOT NULL THEN if(twins.n IS NULL, judged(b, t), 'twice_in_book')
            WHEN l.is_unread THEN 'not_read'
            WHEN l.is_doubtful THEN 'not_whole'
            WHEN b.created < getvariable('oldest') AND NOT t.by_id THEN 'too_old'
            WHEN EXISTS (
                SELECT 1 FROM doubtful AS d
                WHERE d.account = b.account AND b.created >= d.first AND b.created < d.last
            ) THEN 'not_whole'
            WHEN b.created >= getvariable('settled') THEN 'too_recent'
            WHEN t.id IS NOT NULL THEN judged(b, t)
            WHEN twins.n IS NOT NULL AND (t.by_id OR is_paid(b.paid, b.state)) THEN 'twice_in_book'
            WHEN t.by_id THEN 'missing'
            WHEN NOT is_paid(b.paid, b.state) THEN 'match'
            ELSE 'not_paid_or_missing'
        END AS outcome,
        b.n, b.account, b.reference, t.id, t.currency, t.total, t.paid, t.refunded, t.state, t.created, t.read_at
    FROM our_candidates AS b JOIN nowhere AS t USING (n)
        LEFT JOIN (
            SELECT n, bool_or(is_doubtful) AS is_doubtful, bool_or(reason IS NOT NULL) AS is_unread
            FROM looked_up GROUP BY n
        ) AS l USING (n)
        LEFT JOIN twins USING (n)
    WHERE outcome <> 'match';
INSERT INTO reasons
    SELECT n, 'book[' || twin || '] is about the same order' FROM twins JOIN found USING (n)
    WHERE outcome = 'twice_in_book'
    UNION ALL
    SELECT n, any_value(looked_up.reason) FROM looked_up JOIN found USING (n) WHERE outcome = 'not_read' GROUP BY n;
UPDATE found SET read_at = NULL WHERE outcome = 'not_read';

-- Orders of a seller that could not be read get no other outcome.
DELETE FROM found WHERE account IN (SELECT account FROM failed);
INSERT INTO found BY NAME
    SELECT 'not_read' AS outcome, n, account, reference FROM book SEMI JOIN failed USING (account)
    WHERE in_question(created);
INSERT INTO reasons SELECT n, failed.reason FROM book JOIN failed USING (account) WHERE in_question(created);

-- @differences
CREATE VIEW differences AS
    SELECT
        if(
            f.outcome <> 'not_read'
                AND ((f.account, f.reference) IN (SELECT (account, reference) FROM open_writes WHERE reference IS NOT NULL)
                OR (f.account, b.order_id) IN (SELECT (account, order_id) FROM open_writes WHERE order_id IS NOT NULL)),
            'unknown', f.outcome
        ) AS outcome,
        f.account, f.reference, b.order_id,
        f.ids AS merchant_order_ids, b.currency AS book_currency, f.currency, b.total AS book_total, f.total,
        b.paid AS book_paid, f.paid, difference(f.outcome, b.n, f.ids, b.paid, f.paid) AS paid_difference,
        b.refunded AS book_refunded, f.refunded,
        difference(f.outcome, b.n, f.ids, b.refunded, f.refunded) AS refunded_difference,
        state_of(b.status) AS book_status, f.state AS status, b.created AS book_created, f.created, f.read_at,
        CASE
            WHEN r.reason IS NOT NULL THEN r.reason
            WHEN f.outcome = 'not_compared' THEN 'the platform has no readable amount for: '
                || not_compared(b.total, b.paid, b.refunded, f.total, f.paid, f.refunded)
            WHEN f.outcome NOT IN ('missing', 'not_paid_or_missing') THEN NULL
            WHEN regexp_full_match(b.reference, '[0-9]([.,][0-9]+)?E[+][0-9]+') THEN 'book[' || b.n
                || ']: a spreadsheet has shortened the reference; format its column as text, and export the book again'
            WHEN b.reference <> trim(b.reference, e' \t\r\n' || chr(160))
                THEN 'book[' || b.n || ']: the reference has spaces around it; remove them from the book'
        END AS reason,
        b.n
    FROM found AS f LEFT JOIN book AS b USING (n) LEFT JOIN reasons AS r USING (n);

-- @sums
-- A match has the amounts of the book. Amounts of two currencies are in two lines. If the book has an order twice, the
-- platform's amounts belong to the other line.
WITH lines AS (
    SELECT
        account, outcome, coalesce(book_currency, currency) AS currency, 1 AS orders, book_paid, book_refunded,
        if(book_currency <> currency OR outcome = 'twice_in_book', NULL, {'paid': paid, 'refunded': refunded}) AS theirs,
        paid_difference, refunded_difference
    FROM differences
    UNION ALL
    SELECT account, outcome, currency, 0, NULL, NULL, {'paid': paid, 'refunded': refunded}, NULL, NULL FROM differences
        WHERE book_currency <> currency AND outcome <> 'twice_in_book'
), matches AS (
    SELECT account, currency, count(*) AS orders, total_of(paid) AS paid, total_of(refunded) AS refunded
    FROM book ANTI JOIN found USING (n) WHERE in_question(created) GROUP BY account, currency
)
SELECT
    account, coalesce(currency, ''), outcome, sum(orders)::BIGINT, total_of(book_paid), total_of(theirs.paid), total_of(paid_difference),
    total_of(book_refunded), total_of(theirs.refunded), total_of(refunded_difference)
FROM lines GROUP BY account, currency, outcome
UNION ALL
SELECT account, coalesce(currency, ''), 'match', orders, paid, paid, paid - paid, refunded, refunded, refunded - refunded
FROM matches
ORDER BY ALL;

-- @exact_sums
-- A sum that has more digits than a column is NULL. That takes six times as long.
CREATE OR REPLACE MACRO total_of(amount) AS sum_of(amount);
