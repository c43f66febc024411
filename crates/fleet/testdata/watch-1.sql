-- A store of version 1, as it was when the version was made.
PRAGMA application_id = 1986882679;
PRAGMA user_version = 1;
CREATE TABLE about (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE boot (id INTEGER PRIMARY KEY, boot_id TEXT NOT NULL UNIQUE);
CREATE TABLE vm (
    id INTEGER PRIMARY KEY, boot INTEGER NOT NULL, pid INTEGER NOT NULL,
    starttime_ticks INTEGER NOT NULL, name TEXT NOT NULL, vcpus INTEGER NOT NULL,
    environment TEXT NOT NULL, first_reading INTEGER NOT NULL, UNIQUE (boot, pid, starttime_ticks, vcpus));
CREATE TABLE counter (id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE);
CREATE TABLE reading (
    id INTEGER PRIMARY KEY AUTOINCREMENT, boot INTEGER NOT NULL, unix_s INTEGER NOT NULL,
    since_boot_ms INTEGER NOT NULL, vms INTEGER NOT NULL);
CREATE TABLE value (
    reading INTEGER NOT NULL, vm INTEGER NOT NULL, counter INTEGER NOT NULL,
    value REAL NOT NULL, PRIMARY KEY (reading, vm, counter)) WITHOUT ROWID;
INSERT INTO about VALUES ('host', 'node7');
INSERT INTO boot VALUES (1, '1d1b7ec0-a4d7-4fbb-9a8f-3a2e56a4f0a1');
INSERT INTO vm VALUES (1, 1, 0, 0, 'node7', 64, 'host', 1), (2, 1, 4711, 52311, 'db', 4, 'kvm', 1);
INSERT INTO counter VALUES (1, 'host.busy_s'), (2, 'kvm.exits'), (3, 'vcpu.run_s');
INSERT INTO reading VALUES (1, 1, 1772409600, 600000, 1), (2, 1, 1772409900, 900000, 1);
INSERT INTO value VALUES (1, 1, 1, 100.0), (1, 2, 2, 5000.0), (1, 2, 3, 50.0);
INSERT INTO value VALUES (2, 1, 1, 130.0), (2, 2, 2, 17000.0), (2, 2, 3, 80.0);
