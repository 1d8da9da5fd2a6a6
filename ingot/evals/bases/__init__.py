"""The bases of suites: what a suite derives from, by what it has and what it asks.

you have                                                derive from          write
rows with choices, or with short answers                nothing: file.yaml   five keys (data_suite.py)
rows with choices that code must read                   ChoiceSuite          item(row, place)
rows with short answers that code must read             ShortAnswerSuite     short(row, place)
an exam whose answer may be written after thinking      ExamSuite            item(row, place), with its `question`
questions whose answers a program grades one by one     GeneratedSuite       items(subject), grade(item, answer)
word problems with a number as the answer               WordProblems         items(subject)
answers that another model judges                       JudgedSuite          items(subject), judged(item, answer, judge)
instructions that rules check                           InstructionRows      nothing: `local` and `hub` name the rows
anything else: rounds, whole texts, the weights         Suite, FileSuite     measure(subject)
"""
