"""The messaging service of the sandbox: mailboxes, sending, delivery (specification sections 2.C to 4.C).

    service.py      the operations, and their HTTP handlers
    requests.py     request bodies, their large contents in files, and the validated call that an operation receives
    mailboxes.py    accounts and T-Users, folders, and the messages in them
    sending.py      Send and its variants, Forward, SaveRawMessages
    delivery.py     the delivery to each recipient, and the status report
    parsing.py      parses a message into a MessageDetail;  headers.py: parses and formats header values

The choices of the sandbox in points that the specification leaves open (for delivery, see delivery.py):

    rejections                HTTP 200, success false; invalid JSON: HTTP 400, code 4; another media type: HTTP 415,
                              code 4
    codes                     1 credentials; 2 sender or recipient; 3 unknown folder; 4 anything else, such as an
                              invalid body
    credentials               also in `auth` or `authentication`; a body without other members may itself be the
                              credentials
    T-User                    code 2 if the T-User may not act for the Direct address, or it has no mailbox
    user states               of patients (see patients.py): code 1 for a disabled user, 2 for a T-User who acts for one
    certificates              expired or revoked: code 2 for Send and Forward; messages to such a user are Remotely
                              Failed
    folder names              case is ignored but stored; missing parents are created; at most 255 characters
    INBOX.Trash               may be renamed or deleted; deleting a message creates it again
    MoveFolder                moves sub-folders; keeps uids; code 4 if the target exists, is reserved or is inside the
                              folder
    SetFoldersSubscribed      returns the folders; changes none if one is unknown; new folders are subscribed
    GetFolders                sub-folders at any depth, full names, without the root; true, false, 1, 0 in any case
    uids                      at least one, else code 4; unknown ones and duplicates are ignored; results ascend
    uid reuse                 never within a folder; a folder that is created again starts at 1
    copy, move                new uid at the destination; same flags and received date; no effect within one folder
    no change                 success, for example if a message is already read; the ledger records only changes
    DeleteMessagesByUIDs      deleteForever=false within INBOX.Trash changes nothing
    GetDeletedMessageCount    all messages of INBOX.Trash; 0 elsewhere, because no operation only marks as deleted
    reading                   does not mark messages as read
    sender, subject           substring of the decoded header, ignoring case; the empty text matches all
    dates in requests         inclusive; endTime 0 in milliseconds: no end; the UTC form includes the entire last second
    dates in responses        ISO 8601 in UTC with milliseconds: `2026-05-01T12:00:00.000+0000`
    received attachments      in `attachments`; with the profile attachment-list in `attachmentList`
    metadata                  body null, attachments without content
    addresses                 parsed before encoded words are decoded; a sender without an address is the header's text,
                              and "" without a From header
    SaveRawMessages           appends unread messages, received now; ignores uid, msgID and folder; all or none
    Forward                   recipients: a list, or an object with the list `recipients`; one message inline, several
                              attached
    Forward, codes            first 2 for missing recipients or invalid addresses, then 4 if no uid exists
    headers                   From, To, Date, Message-ID, Content-* and others of the service are rejected with code 4
    bodies                    line breaks are returned as CRLF
    too large                 HTTP 413, code 4, with the limit; a raw message with 96 MiB in addition to attachments:
                              code 4
    smtpId                    with or without angle brackets; unknown or of another sender: success without records
    report format             CSV with a header line for more ids than `Sandbox.csv_above` (0: always)
"""
