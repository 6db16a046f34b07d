"""The messaging service of the sandbox: mailboxes, sending, delivery (specification sections 2.C to 4.C).

    service.py      the operations, a row each, and their work
    requests.py     request bodies, checked, and the call that the work of an operation gets
    receiving.py    bodies of any size: large contents go to a file while they are received
    mailboxes.py    accounts and T-Users, folders, and the messages in them
    sending.py      Send and its variants, Forward, SaveRawMessages: messages composed, then written
    delivery.py     what becomes of each recipient, and the status report
    parsing.py      from a message's bytes to a MessageDetail;  headers.py: what a header's value says

What the sandbox does where the specification is silent:

| point | choice |
|---|---|
| refusals | HTTP 200 and success false; what is not JSON: HTTP 400, code 4; another media type: HTTP 415, code 4 |
| codes | 1 credentials; 2 sender or recipient; 3 no such folder; 4 anything else, a wrongly shaped body included |
| credentials | beside the place that section 4 names, `auth`, `authentication` and (mailbox operations) bare ones |
| T-User | right password, but the Direct address is not his, or has no mailbox: code 2 |
| user states | patients only, see patients.py: 1 for a disabled user, 2 for a T-User in his place |
| certificates | expired or revoked: 2 for Send and Forward; what is sent to such a user is Remotely Failed |
| folder names | the same in any case, kept as first spelt; parents are made; up to 255 characters, none control |
| INBOX.Trash | not reserved: it may be renamed or deleted, and comes back when a message is deleted into it |
| MoveFolder | children move along and uids stay; 4 if the target exists, is reserved or is inside the folder |
| SetFoldersSubscribed | answers the folders that it set; an unknown one refuses all; new folders are subscribed |
| GetFolders | all sub-folders at any depth, by full name, without the root; literals true, false, 1, 0 in any case |
| uids | at least one, else 4; unknown ones are skipped; duplicates collapse; answers ascend |
| uid reuse | never in a folder's life; a folder made anew under an old name starts at 1 |
| copy, move | new uid at the destination; flags and received date stay; within one folder neither does anything |
| no change | what is so already (read, subscribed) succeeds; the ledger names only what changed, or has no entry |
| DeleteMessagesByUIDs | false within INBOX.Trash changes nothing |
| GetDeletedMessageCount | all of INBOX.Trash; elsewhere the messages flagged as deleted, which no operation does |
| reading | does not mark as read |
| sender, subject | case-blind substring of the decoded header; the empty text finds all |
| dates in | inclusive; 0 as endTime in milliseconds is open; the UTC form covers the whole second it names |
| dates out | ISO 8601 in UTC with milliseconds: `2026-05-01T12:00:00.000+0000` |
| attachments received | in `attachments`; in `attachmentList` with the profile attachment-list |
| metadata | body null, attachments without content |
| addresses | read before encoded words are decoded; a header without any is given as its text; in `headers`, decoded |
| SaveRawMessages | appends, unread, received now, whatever uid, msgID and folder say; all or nothing |
| Forward | recipients a list, or an object with the list `recipients`; one uid inline, several attached |
| Forward, codes | 2 for no recipients, or what is no address, whatever the uids; then 4 where no uid is there |
| headers | those that the message itself needs (From, To, Date, Message-ID, Content-*, …) cannot be set: 4 |
| bodies | line ends come back as CRLF, as mail has them |
| large messages | answered as small ones are; a message of more than 1 MiB is a file, beside the other state |
| too large | HTTP 413, code 4, and the limit by its name; a raw message with 96 MiB beside attachments: code 4 |
| smtpId | with angle brackets; taken without, too; unknown or another sender's: success and no records |
| report form | CSV, titles first, when more ids are asked for than `MessagingService.csv_above` (0: always) |
| delivery | see delivery.py |
"""
