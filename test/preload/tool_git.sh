# git: a history of 400 commits; its log, gc with threads, the check of the whole repository,
# archives, a merge that conflicts. Told: what they say, and the hashes of logs, archives,
# differences and of all objects.
set -e
export GIT_AUTHOR_DATE='1600000000 +0000' GIT_COMMITTER_DATE='1600000000 +0000'
git init -q -b main repository
cd repository
git config user.name name
git config user.email name@localhost
git config pack.threads 2
awk 'BEGIN {
    seed = 1
    for (change = 1; change <= 400; change++) {
        print "commit refs/heads/main"
        print "committer name <name@localhost> " 1600000000 + change * 60 " +0000"
        text = "change " change
        print "data " length(text) "\n" text
        file = change % 20
        body = ""
        for (i = 0; i < 400; i++) {
            if (i % 40 == change % 40)
                lines[file, i] = seed = seed * 16807 % 2147483647
            body = body "line " i " of " file " " lines[file, i] "\n"
        }
        print "M 100644 inline folder" file % 3 "/file" file
        print "data " length(body) "\n" body
    }
}' | git fast-import --quiet
git reset -q --hard

objects() { git cat-file --batch-all-objects --batch-check | sha256sum; }
git log -p --stat | sha256sum
git log --oneline --graph | head -n 3
git log -S 'line 7' --format=%h -- folder1/file1 | sha256sum
objects
git gc --quiet --aggressive --prune=now
objects
git fsck --full --strict
git count-objects -v | grep -v size
git blame folder2/file2 | sha256sum
git log -p --stat | sha256sum
for change in 0 1 2 3 4 5 6 7 8 9; do
    git archive --format=tar.gz -9 HEAD~$change | sha256sum
done
git checkout -q -b other HEAD~50
sed -i 's/^line 7.*/theirs/' folder?/*
git commit -q -a -m theirs
git checkout -q main
sed -i 's/^line 7.*/ours/' folder?/*
git commit -q -a -m ours
git merge other || echo "status $?"
git diff | sha256sum
